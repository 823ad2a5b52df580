// Times in the viewer's zone: how long ago, with the whole moment on hover.
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });
const near = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" });
const far = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const steps = [[60, "second", 1], [3600, "minute", 60], [86400, "hour", 3600], [7 * 86400, "day", 86400]];

export function ago(moment, now) {
  const seconds = (moment - now) / 1000;
  const step = steps.find(([limit]) => Math.abs(seconds) < limit);
  return step ? near.format(Math.round(seconds / step[2]), step[1]) : far.format(moment);
}

export function length(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${s % 60 ? `${s % 60}s` : ""}`;
  return `${Math.floor(s / 3600)}h${Math.floor((s % 3600) / 60)}m`;
}

export function showTimes(root) {
  if (document.hidden) return;
  const now = Date.now();
  for (const time of root.querySelectorAll("time[datetime]")) {
    const moment = Date.parse(time.dateTime);
    if (Number.isNaN(moment)) continue;
    const text = "since" in time.dataset ? length((now - moment) / 1000) : ago(moment, now);
    if (time.textContent !== text) time.textContent = text;
    if (!time.title) time.title = whole.format(moment);
  }
}
