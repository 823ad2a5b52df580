// Input files of a job: chosen or dropped, sorted out by the server's rules, hashed here, sent if they are missing
// there. The job then names the tree.
import { packs, send } from "./packs.js";
import { sha256 } from "./sha256.js";

const IGNORE = [".gitignore", ".isthmusignore"];
const MOST_FILES = 2000; // what is sent without being asked for, as from the command line
const MOST_BYTES = 100e6;
const ASKED_AT_ONCE = 5000;

export function startFolders(form, changed) {
  const box = form.querySelector("[data-folder]");
  if (!box) return;
  const say = box.querySelector("[data-said]");
  const bar = box.querySelector("progress");
  const details = box.querySelector("details");
  const all = box.querySelector("[data-all]");
  const none = box.querySelector("[data-none]");
  const tree = form.elements["spec.files.tree"];
  const button = form.querySelector("[type=submit]");
  let chosen = null; // Map of path to File
  let turn = 0;
  box.hidden = false;

  const reset = () => {
    turn++;
    tree.value = "";
    bar.hidden = details.hidden = all.hidden = none.hidden = true;
    button.disabled = false;
    say.classList.remove("bad");
    changed();
  };

  const begin = async (files, everything = false) => {
    reset();
    const mine = turn;
    chosen = files;
    if (!files.size) {
      say.textContent = "It holds no files.";
      return;
    }
    button.disabled = true;
    none.hidden = false;
    try {
      await bring(mine, files, everything);
    } catch (error) {
      if (mine !== turn) return;
      say.textContent = `Not uploaded: ${error.message}`;
      say.classList.add("bad");
      bar.hidden = true;
    }
    if (mine === turn && all.hidden && !say.classList.contains("bad")) button.disabled = false;
  };

  const bring = async (mine, files, everything) => {
    const ask = (method, what, body, progress) =>
      send(method, `/console/submit/files/${encodeURIComponent(tenant(form))}/${what}`, body, form.elements.csrf.value, progress);
    const paths = [...files.keys()];
    const ignore = {};
    for (const path of paths) {
      if (IGNORE.includes(path.split("/").pop())) ignore[path] = await files.get(path).text();
    }
    say.textContent = "Checking which files to upload…";
    const sorted = await ask("POST", "choose", JSON.stringify({ paths, ignore }));
    if (mine !== turn) return;
    const bytes = sorted.send.reduce((sum, path) => sum + files.get(path).size, 0);
    const words = `${count(sorted.send.length, "file")}, ${size(bytes)}`;
    list(details, sorted);
    if (!everything && (sorted.send.length > MOST_FILES || bytes > MOST_BYTES)) {
      say.textContent = `Large upload: ${words}. Exclude files with a .gitignore and choose again, or`;
      all.hidden = false;
      return;
    }
    bar.hidden = false;
    const contents = new Map();
    const entries = [];
    let done = 0;
    for (const path of sorted.send) {
      const file = files.get(path);
      const digest = `sha256:${await sha256(file, (more) => (bar.value = ((done += more) / (bytes || 1)) * 0.3))}`;
      if (mine !== turn) return;
      const program = file.size > 1 && (await file.slice(0, 2).text()) === "#!";
      entries.push({ path, size: file.size, mode: program ? 0o755 : 0o644, digest });
      contents.set(digest, file);
      say.textContent = `Reading ${words}…`;
    }
    const missing = [];
    const digests = [...contents.keys()];
    for (let at = 0; at < digests.length; at += ASKED_AT_ONCE) {
      const answer = await ask("POST", "missing", JSON.stringify({ digests: digests.slice(at, at + ASKED_AT_ONCE) }));
      missing.push(...answer.missing);
    }
    const parts = packs(missing.map((digest) => [digest, contents.get(digest)]));
    const total = parts.reduce((sum, part) => sum + part.size, 0) || 1;
    let sent = 0;
    for (const part of parts) {
      if (mine !== turn) return;
      say.textContent = `Uploading ${words}…`;
      await ask("POST", "pack", part, (now) => (bar.value = 0.3 + ((sent + now) / total) * 0.7));
      sent += part.size;
    }
    if (mine !== turn) return;
    entries.sort((a, b) => (a.path < b.path ? -1 : 1));
    const kept = await ask("PUT", "tree", JSON.stringify({ files: entries }));
    if (mine !== turn) return;
    bar.hidden = true;
    tree.value = kept.tree;
    say.textContent = `${words} uploaded${missing.length < digests.length ? "; files that the server already has were not uploaded again" : ""}.`;
    changed();
  };

  for (const input of box.querySelectorAll("input[type=file]")) {
    input.addEventListener("change", () => {
      const found = new Map([...input.files].map((file) => [below(file.webkitRelativePath) || file.name, file]));
      input.value = "";
      begin(found);
    });
  }
  all.addEventListener("click", () => begin(chosen, true));
  none.addEventListener("click", () => {
    chosen = null;
    reset();
    say.textContent = "None.";
    box.querySelector("input[type=file]").focus();
  });
  form.elements["metadata.namespace"]?.addEventListener("change", () => chosen && begin(chosen));
  drop(box, begin);
}

function tenant(form) {
  return form.elements["metadata.namespace"]?.value || "default";
}

function below(path) {
  return path ? path.slice(path.indexOf("/") + 1) : "";
}

function count(number, word) {
  return `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
}

function size(bytes) {
  const units = ["B", "KB", "MB", "GB"];
  let n = 0;
  while (bytes >= 999.5 && n < 3) [bytes, n] = [bytes / 1000, n + 1];
  return `${n && bytes < 99.5 ? bytes.toFixed(1) : Math.round(bytes)} ${units[n]}`;
}

function list(details, { send: sent, leftOut }) {
  const shown = (paths) => paths.slice(0, 200).join("\n") + (paths.length > 200 ? `\nand ${paths.length - 200} more` : "");
  const out = leftOut.length ? `, ${leftOut.length} excluded` : "";
  details.querySelector("summary").textContent = `${count(sent.length, "file")}${out}`;
  details.querySelector("[data-sent]").textContent = shown(sent);
  details.querySelector("[data-left-out]").textContent = leftOut.length ? `Excluded:\n${shown(leftOut)}` : "";
  details.hidden = false;
}

function drop(box, begin) {
  for (const name of ["dragenter", "dragover"]) {
    box.addEventListener(name, (event) => {
      event.preventDefault();
      box.classList.add("over");
    });
  }
  box.addEventListener("dragleave", () => box.classList.remove("over"));
  box.addEventListener("drop", async (event) => {
    event.preventDefault();
    box.classList.remove("over");
    // What was dropped can be asked for only now, before anything is waited for.
    const dropped = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry()).filter(Boolean);
    const found = new Map(dropped.length ? [] : [...event.dataTransfer.files].map((file) => [file.name, file]));
    const alone = dropped.length === 1 && dropped[0].isDirectory;
    for (const entry of dropped) await walk(entry, alone ? "" : entry.name, found);
    begin(found);
  });
}

async function walk(entry, path, found) {
  if (entry.isFile) {
    found.set(path, await new Promise((resolve, reject) => entry.file(resolve, reject)));
    return;
  }
  if (entry.name === ".git") return;
  const reader = entry.createReader();
  for (;;) {
    // A reader gives a hundred at a time.
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) return;
    for (const one of some) await walk(one, path ? `${path}/${one.name}` : one.name, found);
  }
}
