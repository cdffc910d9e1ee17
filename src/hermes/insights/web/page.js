"use strict";
// Draws the charts of the page. It gets numbers only; every text on the page was written, and escaped, before.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const short = (n) => n >= 1e6 ? +(n / 1e6).toFixed(1) + "M" : n >= 1e3 ? +(n / 1e3).toFixed(1) + "K" : String(n);
  const dollars = (n) => n > 0 && n < 0.01 ? "<$0.01" : "$" + n.toFixed(2);
  const hour = (n) => (n % 12 || 12) + (n < 12 ? "AM" : "PM");
  const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeZone: "UTC" });
  const dated = (at) => day.format(new Date(at * 1000));
  const monthDay = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", timeZone: "UTC" });
  const sum = (values) => values.reduce((all, one) => all + (one ?? 0), 0);

  const byDay = (values, label, format, ink) => ({ x: data.days, values, label, format, ink, time: true, named: dated });
  const byName = (values, label, named, every) =>
    ({ x: values.map((_, i) => i), values, label, format: short, ink: "--third", named, every });
  const charts = {
    sessions: byDay(data.sessions, "Sessions", short, "--first"),
    tokens: byDay(data.tokens, "Tokens", short, "--second"),
    cost: byDay(data.cost, "Cost", dollars, "--first"),
    hours: byName(data.hours, "Sessions", hour, 3),
    weekdays: byName(data.weekdays, "Sessions", (n) => data.weekdayNames[n] ?? "", 1),
  };

  // The line below a chart: the value under the pointer, or the sum if there is none. It is text, not a control.
  function read(chart, index) {
    if (index == null) return `${chart.label}: ${chart.format(sum(chart.values))} in all`;
    const value = chart.values[index];
    return `${chart.named(chart.x[index])}: ${value == null ? "unknown" : chart.format(value)}`;
  }

  function options(chart, width) {
    const ink = colour(chart.ink), faint = colour("--faint"), line = colour("--line");
    const axis = { stroke: faint, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    const step = chart.time ? 86400 : 1;
    const dates = {
      incrs: [1, 2, 4, 7, 14, 28, 91, 182, 365].map((days) => days * 86400), space: 64,
      values: (_, at) => at.map((x) => monthDay.format(new Date(x * 1000))),
    };
    const names = { splits: () => chart.x.filter((x) => x % chart.every === 0), values: (_, at) => at.map(chart.named) };
    return {
      width, height: 220, legend: { show: false },
      hooks: { setCursor: [(plot) => { chart.reading.textContent = read(chart, plot.cursor.idx); }] },
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      cursor: { points: { show: false }, drag: { x: Boolean(chart.time), y: false } },
      scales: {
        x: { time: Boolean(chart.time), range: (_, low, high) => [low - step / 2, high + step / 2] },
        y: { range: (_, low, high) => [0, high > 0 ? high * 1.08 : 1] },
      },
      axes: [
        { ...axis, grid: { show: false }, ...(chart.time ? dates : names) },
        // Steps of whole units, or of whole cents, so that no two labels are rounded differently.
        { ...axis, size: 56, incrs: [1, 2, 5].flatMap((n) => Array.from({ length: 15 },
            (_, e) => n * 10 ** (chart.format === dollars ? e - 2 : e))).sort((a, b) => a - b),
          values: (_, at) => at.map(chart.format) },
      ],
      series: [
        {},
        { stroke: ink, fill: ink, width: 0, points: { show: false },
          paths: uPlot.paths.bars({ size: [0.75, 60], radius: 0.15 }) },
      ],
    };
  }

  const drawn = [];
  function draw() {
    while (drawn.length) drawn.pop().destroy();
    for (const place of document.querySelectorAll("[data-chart]")) {
      const chart = charts[place.dataset.chart];
      chart.reading = place.nextElementSibling;
      chart.reading.textContent = read(chart, null);
      drawn.push(new uPlot(options(chart, place.clientWidth), [chart.x, chart.values], place));
    }
  }

  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  let waiting = 0;
  addEventListener("resize", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(draw); });
})();
