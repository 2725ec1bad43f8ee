// The live tail: events become rows at the top of the table. Texts of records are set as text, never as markup.
"use strict";

const ROWS_MAX = 500;
const table = document.querySelector("[data-live]");

function cell(tag, className, ...content) {
  const made = document.createElement(tag);
  made.className = className;
  made.append(...content);
  return made;
}

function bytesShown(part) {
  if (part.kind === "null") return [cell("span", "null", "null")];
  const shown = [cell("span", `data ${part.kind}`, part.text)];
  if (part.is_cut) shown.push(cell("span", "more", `… ${part.size.toLocaleString("en")} bytes`));
  return shown;
}

function row(record) {
  const made = document.createElement("tr");
  made.className = "new";
  const time = document.createElement("time");
  if (record.time !== null) {
    time.dateTime = record.time;
    time.textContent = record.time.replace("T", " ").replace("Z", "");
  } else {
    time.textContent = "–";
  }
  const link = document.createElement("a");
  link.href = `${table.dataset.record}?partition=${record.partition}&offset=${record.offset}`;
  link.textContent = record.offset.toLocaleString("en");
  const offset = cell("th", "number", link);
  offset.scope = "row";
  made.append(
    cell("td", "when", time),
    cell("td", "number", String(record.partition)),
    offset,
    cell("td", "key", ...bytesShown(record.key)),
    cell("td", "value", ...bytesShown(record.value)),
  );
  return made;
}

function follow() {
  const state = document.querySelector("[data-live-state]");
  const pause = document.querySelector("[data-live-pause]");
  const body = table.tBodies[0];
  const source = new EventSource(table.dataset.live);
  let isPaused = false;
  let kept = [];
  let leftOut = 0;
  const say = (text, isLive) => {
    state.textContent = leftOut > 0 ? `${text}; ${leftOut.toLocaleString("en")} not shown` : text;
    state.classList.toggle("on-air", isLive);
  };
  const show = (records) => {
    body.prepend(...records.map(row).reverse());
    while (body.rows.length > ROWS_MAX) body.lastElementChild.remove();
    document.dispatchEvent(new Event("times"));
  };
  const now = () => (isPaused ? say(`Paused, ${kept.length} new`, false) : say("Live", true));
  source.addEventListener("open", now);
  source.addEventListener("records", (event) => {
    const data = JSON.parse(event.data);
    leftOut += data.left_out;
    if (isPaused) {
      kept = kept.concat(data.records).slice(-ROWS_MAX);
    } else {
      show(data.records);
    }
    now();
  });
  source.addEventListener("failed", (event) => {
    const { partition, why } = JSON.parse(event.data);
    say(partition === null ? why : `Partition ${partition}: ${why}`, false);
  });
  source.addEventListener("error", () => say("Not connected; trying again", false));
  pause.hidden = false;
  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.textContent = isPaused ? "Go on" : "Pause";
    pause.setAttribute("aria-pressed", String(isPaused));
    if (!isPaused) {
      show(kept);
      kept = [];
    }
    now();
  });
}

if (table !== null) follow();
