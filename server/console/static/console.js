// What a page without this script lacks: times in the reader's zone, / for the search, files. Everything else is HTML.
"use strict";

const ZONE = "barnabas-console-zone";

function showTimes(isLocal) {
  for (const time of document.querySelectorAll("time[datetime]")) {
    time.dataset.utc ??= time.textContent;
    const moment = new Date(time.dateTime);
    time.title = isLocal ? `${time.dataset.utc} UTC` : moment.toLocaleString();
    if (!isLocal) {
      time.textContent = time.dataset.utc;
      continue;
    }
    const two = (number) => String(number).padStart(2, "0");
    const day = `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())}`;
    const hour = `${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}`;
    time.textContent = `${day} ${hour}.${String(moment.getMilliseconds()).padStart(3, "0")}`;
  }
}

function offerZones() {
  const place = document.querySelector("[data-zone]");
  if (place === null) return;
  const button = document.createElement("button");
  button.className = "link";
  const show = (isLocal) => {
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    place.textContent = isLocal ? `Times are ${zone} ` : "Times are UTC ";
    button.textContent = isLocal ? "Show UTC" : "Show mine";
    place.append(button);
    showTimes(isLocal);
  };
  let isLocal = localStorage.getItem(ZONE) === "local";
  button.addEventListener("click", () => {
    isLocal = !isLocal;
    localStorage.setItem(ZONE, isLocal ? "local" : "utc");
    show(isLocal);
    button.focus();
  });
  show(isLocal);
  document.addEventListener("times", () => showTimes(isLocal));
}

document.addEventListener("keydown", (event) => {
  const isTyping = document.activeElement?.matches("input, textarea, select");
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const field = document.querySelector("[data-search]");
  if (field === null) return;
  event.preventDefault();
  field.closest("details")?.setAttribute("open", "");
  field.focus();
  field.select();
});

// A text field that may be filled from a file.
function offerFiles() {
  for (const text of document.querySelectorAll("textarea[data-takes-file]")) {
    const input = document.createElement("input");
    input.type = "file";
    input.accept = ".avsc,.json";
    input.setAttribute("aria-label", "Take the text of a file");
    input.addEventListener("change", async () => {
      if (input.files.length > 0) text.value = await input.files[0].text();
    });
    text.after(input);
  }
}

offerZones();
offerFiles();
