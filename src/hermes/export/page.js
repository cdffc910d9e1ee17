
"use strict";
(() => {
  const MOST_MARKS = 1000;
  const SLICE = 30;
  const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', "#x27": "'" };
  const byId = (id) => document.getElementById(id);
  const articles = [...document.querySelectorAll("article")];
  const links = [...document.querySelectorAll("nav a")];
  const titles = links.map((link) => link.querySelector(".title").textContent.toLowerCase());
  // Each conversation of several is the text of a <noscript>. It becomes elements while it is shown.
  const stored = articles.map((article) => article.querySelector("noscript"));
  const messages = [];
  const isNarrow = () => matchMedia("(max-width: 50rem)").matches;
  let shown = -1, found = articles.map(() => []), hits = [], at = -1, asked = 0;

  function show(number) {
    if (number === shown || !articles[number]) return;
    if (shown >= 0) {
      links[shown].removeAttribute("aria-current");
      articles[shown].hidden = true;
      if (stored[shown]) articles[shown].replaceChildren(stored[shown]);
    }
    shown = number;
    links[number].setAttribute("aria-current", "true");
    articles[number].hidden = false;
    if (stored[number]) articles[number].innerHTML = stored[number].textContent;
    mark();
  }

  function locate(id) {
    const element = byId(id);
    if (element) return articles.indexOf(element.closest("article"));
    return /^msg-\w+$/.test(id) ? stored.findIndex((one) => one && one.textContent.includes(` id="${id}"`)) : -1;
  }

  function follow() {
    const id = location.hash.slice(1), number = id ? locate(id) : -1;
    show(number >= 0 ? number : Math.max(shown, 0));
    const target = number >= 0 ? byId(id) : null;
    if (target && target !== articles[number]) target.scrollIntoView();
    else scrollTo(0, isNarrow() && target ? target.offsetTop : 0);
    if (number >= 0) links[number].scrollIntoView({ block: "nearest" });
  }

  const strip = (html) => html
    .replace(/<\/?(?:a|code|em|s|strong)\b[^>]*>/g, "").replace(/<[^>]*>/g, "\n")
    .replace(/&(amp|lt|gt|quot|#x27);/g, (_, name) => ENTITIES[name]).toLowerCase();

  function read(number) {
    if (!messages[number]) {
      messages[number] = stored[number]
        ? stored[number].textContent.split("<section ").slice(1)
          .map((html) => ({ id: / id="([^"]*)"/.exec(html)[1], text: strip(`<${html}`) }))
        : [...articles[number].querySelectorAll("section")]
          .map((section) => ({ id: section.id, text: section.textContent.toLowerCase() }));
    }
    return messages[number];
  }
  const words = () => byId("query").value.toLowerCase().split(/\s+/).filter(Boolean);

  async function search() {
    const mine = ++asked, wanted = words(), results = [];
    const holds = (text) => wanted.every((word) => text.includes(word));
    let paused = performance.now();
    for (const number of articles.keys()) {
      results.push(wanted.length ? read(number).filter((message) => holds(message.text)) : []);
      if (performance.now() - paused > SLICE) {
        byId("found").textContent = "…";
        await new Promise((go) => setTimeout(go));
        if (mine !== asked) return;
        paused = performance.now();
      }
    }
    found = results.map((own) => own.map((message) => message.id));
    let conversations = 0;
    links.forEach((link, number) => {
      const matches = !wanted.length || found[number].length > 0 || holds(titles[number]);
      conversations += matches;
      link.parentElement.hidden = !matches;
      const old = link.querySelector(".hits");
      if (old) old.remove();
      if (found[number].length) {
        const count = document.createElement("small");
        count.className = "hits";
        count.textContent = ` · ${found[number].length} found`;
        link.append(count);
      }
    });
    hits = found.flatMap((own, number) => own.map((id) => ({ id, number })));
    at = -1;
    byId("found").textContent = wanted.length ? `${hits.length} in ${conversations}` : "";
    byId("previous").hidden = byId("next").hidden = !hits.length;
    if (wanted.length && (shown < 0 || links[shown].parentElement.hidden)) {
      show(links.findIndex((link) => !link.parentElement.hidden));
    }
    mark();
  }

  function mark() {
    document.querySelectorAll("section.hit").forEach((section) => section.classList.remove("hit"));
    if (window.Highlight && CSS.highlights) CSS.highlights.delete("found");
    const wanted = words(), ranges = [];
    if (!wanted.length || shown < 0) return;
    for (const section of found[shown].map(byId)) {
      section.classList.add("hit");
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
    if (window.Highlight && CSS.highlights) CSS.highlights.set("found", new Highlight(...ranges));
  }

  function step(by) {
    if (!hits.length) return;
    at = (at + by + hits.length) % hits.length;
    const wanted = words();
    show(hits[at].number);
    const hit = byId(hits[at].id);
    for (const folded of hit.querySelectorAll("details")) {
      if (wanted.some((word) => folded.textContent.toLowerCase().includes(word))) folded.open = true;
    }
    hit.scrollIntoView({ block: "center" });
    links[hits[at].number].scrollIntoView({ block: "nearest" });
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
  articles.forEach((article) => { article.hidden = true; });
  if (isNarrow() && articles.length > 1) byId("list").open = false;
  follow();
})();
