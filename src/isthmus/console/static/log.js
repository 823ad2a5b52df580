// The log: followed over server-sent events that resume where they broke, shown as text nodes and nothing else.
const KEPT = 20000; // lines on the page; the download has all
const TAIL = 5000; // lines fetched at first
const CODES = /\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])/g;

export function startLog() {
  const card = document.getElementById("log");
  const place = card.querySelector(".log-text");
  const view = new View(place, place.querySelector("pre"));
  const follow = document.getElementById("follow");
  const state = document.getElementById("log-state");
  const search = new Search(card.querySelector(".log-search"), view, () => (follow.checked = false));
  follow.addEventListener("change", () => follow.checked && view.end());
  place.addEventListener("wheel", (event) => event.deltaY < 0 && (follow.checked = false), { passive: true });
  place.addEventListener("scroll", () => view.atEnd() && !search.text && (follow.checked = true), { passive: true });
  listen(card.dataset.log, (text) => {
    view.add(text);
    if (follow.checked) view.end();
    search.again();
  }, (words, over) => (state.textContent = words + (over && !place.textContent.trim() ? ", it wrote nothing" : "")));
}

function listen(address, add, tell) {
  const stream = new EventSource(`${address}?follow=true&tailLines=${TAIL}`);
  tell("connecting…");
  stream.onopen = () => tell("live");
  stream.onmessage = (event) => {
    tell("live");
    add(JSON.parse(event.data));
  };
  stream.addEventListener("end", (event) => {
    stream.close();
    const { phase, deleted } = JSON.parse(event.data);
    tell(deleted ? "deleted" : `complete (${phase.toLowerCase()})`, true);
  });
  stream.onerror = () => tell(stream.readyState === EventSource.CLOSED ? "not available" : "connection lost; trying again…");
  window.addEventListener("pagehide", () => stream.close());
}

class View {
  constructor(place, pre) {
    this.place = place;
    this.pre = pre;
    this.lines = 0;
    this.cut = 0;
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
  constructor(form, view, stop) {
    this.view = view;
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
      for (const node of this.view.pre.childNodes) {
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
    const frame = this.view.place.getBoundingClientRect();
    this.view.place.scrollTop += box.top - frame.top - frame.height / 3;
    this.told.textContent = `${this.at + 1}/${this.hits.length}`;
  }
}
