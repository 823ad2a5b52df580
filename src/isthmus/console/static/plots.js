// Plots of a job's metrics: over server-sent events while it runs, one small plot per series, each as long as the job.
import { length } from "./times.js";
import uPlot from "./vendor/uplot.js";

const NAMES = { cpu: "CPU", memory: "Memory", power: "Power", device: "Device utilization" };
const UNITS = { cores: "cores", watts: "W", fraction: "%" };
const SECONDS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 4 * 3600, 8 * 3600, 24 * 3600, 7 * 86400];
const POWERS = Array.from({ length: 40 }, (_, power) => 2 ** (power + 10));
const plots = new Map();
let stream = null;
let cursor = "";
let over = false;

export function startPlots() {
  const card = document.getElementById("plots");
  open(card);
  window.addEventListener("pagehide", close);
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open(card)));
  document.addEventListener("theme", () => redraw());
  document.addEventListener("live", () => stretch());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw());
}

function open(card) {
  if (stream || over || document.hidden) return;
  stream = new EventSource(`${card.dataset.metrics}?follow=true${cursor ? `&since=${encodeURIComponent(cursor)}` : ""}`);
  stream.onmessage = (event) => take(card, JSON.parse(event.data));
  stream.addEventListener("end", () => {
    over = true;
    close();
    stretch();
  });
}

function close() {
  stream?.close();
  stream = null;
}

function take(card, told) {
  cursor = told.cursor || cursor;
  for (const series of told.series || []) {
    if (!series.points.length) continue;
    let plot = plots.get(series.name);
    if (!plot) plots.set(series.name, (plot = new Plot(card.querySelector(".plot-list"), series)));
    plot.add(series.points, told.reset);
  }
  card.hidden = plots.size === 0;
  stretch();
}

function redraw() {
  for (const plot of plots.values()) plot.make();
}

function stretch() {
  for (const plot of plots.values()) plot.chart?.setData(plot.data);
}

// From when to when the job ran, in seconds since 1970; while it runs, to now.
function span() {
  const { started, finished } = document.getElementById("plots-span").dataset;
  const begin = Date.parse(started) / 1000;
  const end = finished ? Date.parse(finished) / 1000 : Date.now() / 1000;
  return Number.isNaN(begin) || Number.isNaN(end) || end <= begin ? null : { begin, end };
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

class Plot {
  constructor(list, series) {
    this.unit = series.unit;
    this.name = NAMES[series.name] || series.name.replace(/^reported\./, "");
    if (series.source === "estimated") this.name += " (estimated)";
    this.title = UNITS[this.unit] ? `${this.name}, ${UNITS[this.unit]}` : this.name;
    this.begin = null;
    this.data = [[], []];
    this.box = document.createElement("div");
    this.box.className = "plot";
    const title = document.createElement("h3");
    this.now = document.createElement("span");
    title.append(this.title, this.now);
    this.place = document.createElement("div");
    this.box.append(title, this.place);
    list.append(this.box);
    new ResizeObserver(() => this.chart && this.chart.setSize(this.size())).observe(this.place);
  }

  size() {
    return { width: Math.max(200, this.place.clientWidth), height: 150 };
  }

  add(points, reset) {
    if (reset) this.data = [[], []];
    if (this.begin === null || reset) this.begin = span()?.begin ?? points[0][0];
    for (const [moment, value] of points) {
      this.data[0].push(Math.max(0, moment - this.begin));
      this.data[1].push(value);
    }
    this.now.textContent = shown(this.data[1].at(-1), this.unit);
    this.place.setAttribute("role", "img");
    this.place.setAttribute("aria-label", `${this.name} over time, last value ${this.now.textContent}`);
    if (!this.chart) requestAnimationFrame(() => this.chart || this.make());
  }

  // The whole job, also where nothing was measured.
  range(last) {
    const ran = span();
    return [0, Math.max(ran ? ran.end - this.begin : 0, last ?? 0, 1)];
  }

  make() {
    this.chart?.destroy();
    const dim = colour("--dim");
    const axis = { stroke: dim, grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    this.chart = new uPlot({
      ...this.size(),
      legend: { show: false },
      cursor: { drag: { x: false, y: false } },
      axes: [
        { ...axis, size: 28, space: 60, incrs: SECONDS, values: (_, values) => values.map(length) },
        { ...axis, size: 66, space: 30, ...(this.unit === "bytes" ? { incrs: POWERS } : {}), values: (_, values) => values.map((value) => tick(value, this.unit)) },
      ],
      scales: { x: { time: false, range: (_, low, high) => this.range(high) }, y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.08 : 1] } },
      series: [{}, { stroke: colour("--accent"), width: 1.6, fill: `color-mix(in srgb, ${colour("--accent")} 14%, transparent)`, points: { show: this.data[0].length < 3 } }],
      hooks: { setCursor: [(chart) => {
        const value = chart.cursor.idx == null ? this.data[1].at(-1) : this.data[1][chart.cursor.idx];
        this.now.textContent = shown(value, this.unit);
      }] },
    }, this.data, this.place);
  }
}

// At the axis of cores, watts and percent the title has the unit.
function tick(value, unit) {
  if (!value) return "0";
  return unit === "bytes" ? shown(value, unit) : `${+(unit === "fraction" ? value * 100 : value).toPrecision(3)}`;
}

function shown(value, unit) {
  if (value == null) return "";
  if (unit === "bytes") {
    const step = value >= 2 ** 30 ? [2 ** 30, "GiB"] : value >= 2 ** 20 ? [2 ** 20, "MiB"] : [1024, "KiB"];
    return `${+(value / step[0]).toPrecision(3)} ${step[1]}`;
  }
  const number = +(unit === "fraction" ? value * 100 : value).toPrecision(3);
  return UNITS[unit] ? `${number} ${number === 1 && unit === "cores" ? "core" : UNITS[unit]}` : `${number}`;
}
