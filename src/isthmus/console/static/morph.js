// Makes an element like another one with as few changes as possible, so that focus, selection and scrolling stay.
export function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || old.id !== fresh.id) {
    old.replaceWith(document.importNode(fresh, true));
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  // The text of a time is the viewer's; only the moment is the server's.
  if (old.nodeName === "TIME" && old.dateTime === fresh.dateTime) return;
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(old.nodeName === "DETAILS" && name === "open")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (old.nodeName === "INPUT" && old === document.activeElement) return;
  children(old, fresh);
}

function children(old, fresh) {
  const kept = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
  let at = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const mine = wanted.id ? kept.get(wanted.id) : null;
    if (mine && mine !== at) {
      old.insertBefore(mine, at);
      at = mine;
    } else if (wanted.id && !mine) {
      at = old.insertBefore(document.importNode(wanted, true), at).nextSibling;
      continue;
    }
    if (!at) {
      old.append(document.importNode(wanted, true));
      continue;
    }
    const next = at.nextSibling;
    morph(at, wanted);
    at = next;
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}
