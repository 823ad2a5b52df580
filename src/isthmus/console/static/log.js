// The log: each stream followed over server-sent events that resume where they broke, shown as text nodes only.
const KEPT = 20000; // lines on the page; the download has all
const TAIL = 5000; // lines fetched at first
const CODES = /\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])/g;

const HIDDEN = 60000; // a page that nobody sees for so long holds no connection

export function startLog() {
  const card = document.getElementById("log");
  const follow = document.getElementById("follow");
  const panes = [...card.querySelectorAll("[data-stream]")].map((place) => new Pane(card.dataset.log, place, follow));
  const views = panes.map((pane) => pane.view);
  const search = new Search(card.querySelector(".log-search"), views, () => (follow.checked = false));
  const state = document.getElementById("log-state");
  const tell = () => {
    state.textContent = together(panes);
    follow.closest("label").hidden = panes.every((pane) => pane.end);
  };
  for (const pane of panes) {
    pane.changed = () => {
      tell();
      search.again();
    };
    pane.searching = () => Boolean(search.text);
    pane.open();
  }
  follow.addEventListener("change", () => follow.checked && views.forEach((view) => view.end()));
  document.addEventListener("live", tell);
  window.addEventListener("pagehide", () => panes.forEach((pane) => pane.close()));
  let timer = 0;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(() => panes.forEach((pane) => pane.close()), HIDDEN);
    else panes.forEach((pane) => pane.reopen());
  });
}

const phase = () => document.querySelector(".head .phase")?.dataset.phase || "";

// "live" only while something can come: a job that waits has no log yet, and one that ended has no more.
function together(panes) {
  const problem = panes.find((pane) => pane.problem);
  if (problem) return problem.problem;
  const end = panes.find((pane) => pane.end)?.end;
  if (end && panes.every((pane) => pane.end)) {
    const empty = panes.every((pane) => pane.view.empty());
    return (end.deleted ? "deleted" : `complete (${end.phase.toLowerCase()})`) + (empty ? ", no output" : "");
  }
  if (["Running", "Finishing", "Cancelling"].includes(phase())) return "live";
  return ["Pending", "Placed", "Queued", "Held"].includes(phase()) ? "the job has not started" : "";
}

class Pane {
  constructor(address, box, follow) {
    this.address = `${address}?follow=true&tailLines=${TAIL}&stream=${box.dataset.stream}`;
    this.said = box.querySelector("[data-said]");
    this.follow = follow;
    const place = box.querySelector(".log-text");
    this.view = new View(place, place.querySelector("pre"));
    this.problem = "";
    this.end = null;
    place.addEventListener("wheel", (event) => event.deltaY < 0 && (follow.checked = false), { passive: true });
    place.addEventListener("scroll", () => this.view.atEnd() && !this.searching() && (follow.checked = true), { passive: true });
  }

  open() {
    this.stream = new EventSource(this.address);
    this.stream.onopen = () => this.tell("");
    this.stream.onmessage = (event) => {
      this.view.add(JSON.parse(event.data));
      if (this.follow.checked) this.view.end();
      this.tell("");
    };
    this.stream.addEventListener("end", (event) => {
      this.close();
      this.end = JSON.parse(event.data);
      this.tell("");
    });
    this.stream.onerror = () => {
      if (this.stream) this.tell(this.stream.readyState === EventSource.CLOSED ? "not available" : "connection lost; trying again…");
    };
  }

  close() {
    this.stream?.close();
    this.stream = null;
  }

  reopen() {
    if (this.stream || this.end) return;
    this.view.clear();
    this.open();
  }

  tell(problem) {
    this.problem = problem;
    if (this.said) this.said.textContent = this.end && this.view.empty() ? "empty" : "";
    this.changed();
  }
}

class View {
  constructor(place, pre) {
    this.place = place;
    this.pre = pre;
    this.lines = 0;
    this.line = null; // the node of a line that has not ended yet
  }

  add(text) {
    const parts = text.replace(CODES, "").replace(/\r\n/g, "\n").split("\n");
    const pieces = document.createDocumentFragment();
    const start = this.line ? this.line.data : "";
    const whole = parts.slice(0, -1).map((part, index) => overwritten(index ? part : start + part));
    const last = shortened(parts.length > 1 ? parts.at(-1) : start + parts[0]);
    if (this.line) this.line.remove();
    for (let at = 0; at < whole.length; at += 500) {
      pieces.append(document.createTextNode(whole.slice(at, at + 500).join("\n") + "\n"));
    }
    this.line = last ? document.createTextNode(last) : null;
    if (this.line) pieces.append(this.line);
    this.pre.append(pieces);
    this.lines += whole.length;
    this.trim();
  }

  empty() {
    return !this.pre.textContent.trim();
  }

  clear() {
    this.pre.replaceChildren();
    this.lines = 0;
    this.line = null;
  }

  trim() {
    while (this.lines > KEPT && this.pre.childNodes.length > 1) {
      const first = this.pre.firstChild;
      this.lines -= first.data.split("\n").length - 1;
      first.remove();
    }
  }

  atEnd() {
    return this.place.scrollHeight - this.place.scrollTop - this.place.clientHeight < 8;
  }

  end() {
    this.place.scrollTop = this.place.scrollHeight;
  }
}

// A carriage return begins the line anew, as progress bars do; one at the very end waits for what comes.
function shortened(line) {
  return line.slice(line.replace(/\r+$/, "").lastIndexOf("\r") + 1);
}

function overwritten(line) {
  return shortened(line).replace(/\r+$/, "");
}

class Search {
  constructor(form, views, stop) {
    this.views = views;
    this.stop = stop;
    this.text = "";
    this.hits = [];
    this.at = -1;
    this.told = form.querySelector(".hits");
    const input = form.querySelector("input");
    input.addEventListener("input", () => this.look(input.value));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.next();
    });
  }

  look(text) {
    this.text = text.toLowerCase();
    this.at = -1;
    this.again();
    if (this.text && this.hits.length) this.next();
  }

  again() {
    this.hits = [];
    if (this.text) {
      for (const node of this.views.flatMap((view) => [...view.pre.childNodes])) {
        const words = node.data.toLowerCase();
        for (let at = words.indexOf(this.text); at >= 0 && this.hits.length < 5000; at = words.indexOf(this.text, at + this.text.length)) {
          const range = new Range();
          range.setStart(node, at);
          range.setEnd(node, at + this.text.length);
          this.hits.push(range);
        }
      }
    }
    this.told.textContent = this.text ? `${this.at < 0 ? 0 : this.at + 1}/${this.hits.length}` : "";
    if (!CSS.highlights) return;
    CSS.highlights.set("hits", new Highlight(...this.hits));
    if (!this.text) CSS.highlights.delete("hit");
  }

  next() {
    if (!this.hits.length) return;
    this.stop();
    this.at = (this.at + 1) % this.hits.length;
    const hit = this.hits[this.at];
    if (CSS.highlights) CSS.highlights.set("hit", new Highlight(hit));
    const box = hit.getBoundingClientRect();
    const { place } = this.views.find((view) => view.pre.contains(hit.startContainer));
    const frame = place.getBoundingClientRect();
    place.scrollTop += box.top - frame.top - frame.height / 3;
    this.told.textContent = `${this.at + 1}/${this.hits.length}`;
  }
}
