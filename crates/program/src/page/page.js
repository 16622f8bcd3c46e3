"use strict";

// Shows what /now says, once a second. All text of the host is set as text, never as markup.

const INTERVAL_MS = 1000;
const FIRST_MS = 100;
const PATIENCE_MS = 8000;
const GONE = "the agent does not answer";
const token = location.hash.slice(1);
const state = { opened: null, isPaused: false, timer: 0, request: null, at: null };

const byId = (id) => document.getElementById(id);

/** An element with a class, a text, and what lies in it. */
function make(name, { className = "", text = null, title = null, children = [] } = {}) {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text !== null) element.textContent = text;
  if (title) element.title = title;
  element.append(...children);
  return element;
}

/** The range that values are drawn in: 0 is always in it, so that heights can be compared. */
function range(histories) {
  const known = histories.flat().filter((value) => value !== null);
  return { least: Math.min(0, ...known), most: Math.max(0, ...known) };
}

/** Values over time, the newest at the right end; a gap where one is not known. */
function track(history, { least, most }) {
  const [width, height, columns] = [120, 20, 120];
  const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  drawing.setAttribute("class", "track");
  drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
  drawing.setAttribute("preserveAspectRatio", "none");
  drawing.setAttribute("aria-hidden", "true");
  const y = (value) => height - 1 - ((value - least) / (most - least || 1)) * (height - 2);
  const x = (place) => ((columns - history.length + place + 0.5) * width) / columns;
  const [line, area] = [[], []];
  let run = [];
  const end = () => {
    if (!run.length) return;
    // A value between two gaps is as wide as a second.
    if (run.length === 1) run.push([run[0][0] + width / columns / 2, run[0][1]]);
    const points = run.map(([x, y]) => `${x.toFixed(2)} ${y.toFixed(2)}`).join("L");
    line.push(`M${points}`);
    area.push(`M${run[0][0].toFixed(2)} ${y(0).toFixed(2)}L${points}L${run.at(-1)[0].toFixed(2)} ${y(0).toFixed(2)}Z`);
    run = [];
  };
  history.forEach((value, place) => (value === null ? end() : run.push([x(place), y(value)])));
  end();
  for (const [name, parts] of [["area", area], ["line", line]]) {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("class", name);
    path.setAttribute("d", parts.join(""));
    drawing.append(path);
  }
  return drawing;
}

function stageRow(name) {
  const body = byId("stages").tBodies[0];
  const known = [...body.rows].find((row) => row.dataset.stage === name);
  if (known) return known;
  const button = make("button", { text: name });
  button.type = "button";
  button.addEventListener("click", () => {
    state.opened = state.opened === name ? null : name;
    refresh();
  });
  const row = make("tr", {
    children: [make("td", { children: [button] }), make("td"), make("td", { className: "now" }), make("td", { className: "wide" })],
  });
  row.dataset.stage = name;
  body.append(row);
  return row;
}

function showStage(stage) {
  const row = stageRow(stage.name);
  const [name, how, now, wide] = row.cells;
  const isOpened = stage.name === state.opened;
  row.classList.toggle("chosen", isOpened);
  row.classList.toggle("is-down", stage.state === "down");
  name.firstChild.setAttribute("aria-expanded", String(isOpened));
  how.textContent = stage.state;
  how.className = stage.state;
  const text = stage.now ?? (stage.state === "up" ? "-" : "");
  now.replaceChildren(make("span", { className: stage.is_bad ? "bad" : "", text }));
  if (stage.alarm) now.append(make("span", { className: "alarm", text: stage.alarm }));
  wide.replaceChildren(track(stage.history, range([stage.history])));
}

function tableOf(table) {
  const heads = table.columns.map(({ title, about, is_number }) => {
    const head = make("th", { className: is_number ? "number" : "", text: title, title: about });
    head.scope = "col";
    return head;
  });
  const cell = (text, place) => make("td", { className: table.columns[place].is_number ? "number" : "", text });
  const rows = table.rows.map((row) => make("tr", { children: row.map(cell) }));
  const shown = make("table", {
    children: [make("thead", { children: [make("tr", { children: heads })] }), make("tbody", { children: rows })],
  });
  const parts = [make("h3", { text: table.about }), make("div", { className: "scroll", children: [shown] })];
  // A finger cannot point at a title.
  const explained = table.columns.filter(({ about }) => about);
  const meanings = explained.flatMap(({ title, about }) => [make("dt", { text: title }), make("dd", { className: "meaning", text: about })]);
  if (meanings.length) parts.push(make("dl", { className: "columns", children: meanings }));
  if (!table.rows.length) parts[1] = make("p", { className: "down", text: "None." });
  if (table.left_out) parts.push(make("p", { className: "left-out", text: `and ${table.left_out} more` }));
  if (table.plot && table.plot.rows.length) parts.push(plotOf(table.plot));
  return parts;
}

function plotOf(plot) {
  const drawn = range(plot.rows.map((row) => row.history));
  const heads = [make("th", { text: plot.title }), ...plot.columns.map((text) => make("th", { className: "number", text }))];
  heads.push(make("th", { className: "wide", text: "HISTORY" }));
  const rows = plot.rows.map(({ key, numbers, is_bad, history }) => {
    const cells = numbers.map((text, place) => make("td", { className: is_bad && place !== 1 ? "number bad" : "number", text }));
    const wide = make("td", { className: "wide", children: [track(history, drawn)] });
    return make("tr", { children: [make("td", { text: key }), ...cells, wide] });
  });
  const shown = make("table", {
    className: "plot",
    children: [make("thead", { children: [make("tr", { children: heads })] }), make("tbody", { children: rows })],
  });
  return make("div", { className: "scroll", children: [shown] });
}

function showOpened(opened) {
  const section = byId("opened");
  section.hidden = !opened;
  if (!opened) return;
  // Somebody copies a figure: it stays until they are done.
  const selection = getSelection();
  if (!selection.isCollapsed && section.contains(selection.anchorNode) && section.dataset.stage === opened.name) return;
  section.dataset.stage = opened.name;
  const scrolled = [...section.querySelectorAll(".scroll")].map((part) => part.scrollLeft);
  const parts = [make("h2", { text: opened.name })];
  if (opened.error) parts.push(make("p", { className: "bad", text: opened.error }));
  parts.push(...opened.tables.flatMap(tableOf));
  if (opened.figures.length) {
    const lines = opened.figures.flatMap(([name, value, meaning]) => [
      make("dt", { text: name }),
      make("dd", { className: "value", text: value }),
      make("dd", { className: "meaning", text: meaning }),
    ]);
    parts.push(make("h3", { text: "Figures" }), make("dl", { children: lines }));
  }
  if (opened.state === "down") parts.push(make("p", { className: "down", text: "Down. Configure it in tarn.toml, then run `tarn up`." }));
  section.replaceChildren(...parts);
  [...section.querySelectorAll(".scroll")].forEach((part, place) => (part.scrollLeft = scrolled[place] ?? 0));
}

function showTroubles(texts) {
  const list = byId("troubles");
  list.hidden = !texts.length;
  const shown = [...list.children].map((item) => item.textContent);
  // What is the same is not announced again.
  if (shown.join("\n") !== texts.join("\n")) list.replaceChildren(...texts.map((text) => make("li", { text })));
}

/** The time of day of a moment, which is UTC. */
function timeOf(at) {
  return at ? `${at.slice(11, 19)} UTC` : "none";
}

function showEvents(events) {
  byId("quiet").hidden = events.length > 0;
  const shown = events.map(({ at, stage, text }) =>
    make("li", {
      children: [make("time", { text: at.replace("T", " ").replace("Z", "") }), make("span", { text: stage }), make("span", { text })],
    }),
  );
  byId("events").replaceChildren(...shown);
}

function show(now) {
  // Nobody has looked for a while, and it begins to read again.
  if (now.at === null && state.at) {
    showOld("reading the figures", now.troubles);
    return;
  }
  document.title = now.troubles.length ? `(!) tarn ${now.host}` : `tarn ${now.host}`;
  byId("host").textContent = now.host;
  byId("agent").textContent = now.agent ?? "reading the figures";
  state.at = now.at;
  document.body.classList.toggle("stale", now.silent_s !== null);
  const silent = now.silent_s === null ? [] : [`no newer figures than those of ${timeOf(now.at)}`];
  showTroubles([...silent, ...now.troubles]);
  now.stages.forEach(showStage);
  showOpened(now.opened);
  showEvents(now.events);
}

async function fetchNow(signal) {
  const query = state.opened === null ? "" : `?stage=${encodeURIComponent(state.opened)}`;
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const fail = () => {
    throw new Error(GONE);
  };
  const answer = await fetch(`now${query}`, { headers, signal }).catch(fail);
  if (answer.status === 401) throw new Error("this page needs its token: open it as http://ADDRESS/#TOKEN");
  if (answer.ok) return answer.json().catch(fail);
  const isOurs = (answer.headers.get("content-type") ?? "").startsWith("text/plain");
  throw new Error(isOurs ? (await answer.text()).trim() : `${GONE}: ${answer.status} from a proxy`);
}

/** What is shown is not of now any more. */
function showOld(agent, troubles) {
  document.title = `${troubles.length ? "(!) " : ""}tarn ${byId("host").textContent}`.trim();
  document.body.classList.add("stale");
  byId("agent").textContent = agent;
  showTroubles(troubles);
}

/** What is shown stays. */
function stop() {
  clearTimeout(state.timer);
  const request = state.request;
  state.request = null;
  request?.abort();
}

/** Only the last request counts. */
async function refresh() {
  stop();
  const request = (state.request = new AbortController());
  const late = setTimeout(() => request.abort(), PATIENCE_MS);
  let isFirst = false;
  try {
    const now = await fetchNow(request.signal);
    if (request !== state.request) return;
    show(now);
    isFirst = now.at === null && !now.troubles.length;
  } catch (error) {
    if (request !== state.request) return;
    showOld(state.at ? `figures of ${timeOf(state.at)}` : "", [error.message]);
  } finally {
    clearTimeout(late);
  }
  if (!state.isPaused && !document.hidden) state.timer = setTimeout(refresh, isFirst ? FIRST_MS : INTERVAL_MS);
}

byId("explain").addEventListener("click", () => {
  const isExplained = document.body.classList.toggle("explained");
  byId("explain").setAttribute("aria-pressed", String(isExplained));
});
byId("pause").addEventListener("click", () => {
  state.isPaused = !state.isPaused;
  byId("pause").setAttribute("aria-pressed", String(state.isPaused));
  if (state.isPaused) stop();
  else refresh();
});
document.addEventListener("visibilitychange", () => document.hidden || state.isPaused || refresh());
window.addEventListener("hashchange", () => location.reload());
refresh();
