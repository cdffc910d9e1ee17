
"use strict";
(() => {
  const MOST_MARKS = 1000;
  const SLICE = 30;
  const byId = (id) => document.getElementById(id);
  const articles = [...document.querySelectorAll("article")];
  const links = [...document.querySelectorAll("nav a")];
  const titles = articles.map((one) => one.querySelector("h1").textContent.toLowerCase());
  const texts = new Map();
  const isNarrow = () => matchMedia("(max-width: 50rem)").matches;
  let shown = null, hits = [], at = -1, asked = 0;

  function show(article) {
    if (!article || article === shown) return;
    shown = article;
    articles.forEach((one, number) => {
      one.hidden = one !== article;
      if (one === article) links[number].setAttribute("aria-current", "true");
      else links[number].removeAttribute("aria-current");
    });
    mark();
  }

  function follow() {
    const target = location.hash.length > 1 ? byId(decodeURIComponent(location.hash.slice(1))) : null;
    const article = target && target.closest("article");
    show(article || shown || articles[0]);
    if (article && target !== article) target.scrollIntoView();
    else scrollTo(0, isNarrow() && article ? article.offsetTop : 0);
  }

  const said = (section) => {
    if (!texts.has(section)) texts.set(section, section.textContent.toLowerCase());
    return texts.get(section);
  };
  const words = () => byId("query").value.toLowerCase().split(/\s+/).filter(Boolean);

  async function search() {
    const mine = ++asked, wanted = words();
    const holds = (text) => wanted.every((word) => text.includes(word));
    let paused = performance.now();
    const found = [];
    for (const [number, article] of articles.entries()) {
      const own = [];
      if (wanted.length) {
        for (const section of article.querySelectorAll("section")) {
          if (holds(said(section))) own.push(section);
          if (performance.now() - paused > SLICE) {
            await new Promise((go) => setTimeout(go));
            if (mine !== asked) return;
            paused = performance.now();
          }
        }
      }
      found.push(own);
    }
    document.querySelectorAll("section.hit").forEach((one) => one.classList.remove("hit"));
    let conversations = 0;
    articles.forEach((article, number) => {
      const matches = !wanted.length || found[number].length > 0 || holds(titles[number]);
      conversations += matches;
      links[number].parentElement.hidden = !matches;
      const old = links[number].querySelector(".hits");
      if (old) old.remove();
      if (found[number].length) {
        const count = document.createElement("small");
        count.className = "hits";
        count.textContent = ` · ${found[number].length} found`;
        links[number].append(count);
      }
      found[number].forEach((section) => section.classList.add("hit"));
    });
    hits = found.flat();
    at = -1;
    byId("found").textContent = wanted.length ? `${hits.length} in ${conversations}` : "";
    byId("previous").hidden = byId("next").hidden = !hits.length;
    if (wanted.length) {
      const current = articles.indexOf(shown);
      if (current < 0 || links[current].parentElement.hidden) {
        show(articles.find((_, number) => !links[number].parentElement.hidden));
      }
    }
    mark();
  }

  function mark() {
    if (!window.Highlight || !CSS.highlights) return;
    CSS.highlights.delete("found");
    const wanted = words(), ranges = [];
    if (!wanted.length || !shown) return;
    for (const section of shown.querySelectorAll("section.hit")) {
      const walker = document.createTreeWalker(section, NodeFilter.SHOW_TEXT);
      while (walker.nextNode() && ranges.length < MOST_MARKS) {
        const node = walker.currentNode, text = node.data.toLowerCase();
        if (text.length !== node.data.length) continue;
        for (const word of wanted) {
          for (let from = text.indexOf(word); from >= 0 && ranges.length < MOST_MARKS; from = text.indexOf(word, from + word.length)) {
            const range = new Range();
            range.setStart(node, from);
            range.setEnd(node, from + word.length);
            ranges.push(range);
          }
        }
      }
    }
    CSS.highlights.set("found", new Highlight(...ranges));
  }

  function step(by) {
    if (!hits.length) return;
    at = (at + by + hits.length) % hits.length;
    const hit = hits[at], wanted = words();
    show(hit.closest("article"));
    for (const folded of hit.querySelectorAll("details")) {
      if (wanted.some((word) => folded.textContent.toLowerCase().includes(word))) folded.open = true;
    }
    hit.scrollIntoView({ block: "center" });
    byId("found").textContent = `${at + 1} / ${hits.length}`;
  }

  let waiting = 0;
  byId("query").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(search, 120);
  });
  byId("query").addEventListener("keydown", (event) => {
    if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
  });
  byId("next").addEventListener("click", () => step(1));
  byId("previous").addEventListener("click", () => step(-1));
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== byId("query")) {
      event.preventDefault();
      byId("query").focus();
    }
  });
  document.querySelector("nav").addEventListener("click", () => {
    if (isNarrow()) byId("list").open = false;
  });
  addEventListener("hashchange", follow);
  if (isNarrow() && articles.length > 1) byId("list").open = false;
  follow();
})();
