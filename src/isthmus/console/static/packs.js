// Contents as tar streams, named by digest, as the command line sends them. A pack is a Blob of Blobs: the browser reads
// the files while it sends, and says how far it is.
const BLOCK = 512;
const MOST = 64 * 2 ** 20;

export function packs(contents) {
  const found = [];
  let parts = [];
  let size = 0;
  for (const [digest, file] of contents) {
    if (size && size + file.size > MOST) {
      found.push(new Blob([...parts, new Uint8Array(2 * BLOCK)]));
      parts = [];
      size = 0;
    }
    parts.push(header(digest, file.size), file, new Uint8Array((BLOCK - (file.size % BLOCK)) % BLOCK));
    size += file.size;
  }
  if (parts.length) found.push(new Blob([...parts, new Uint8Array(2 * BLOCK)]));
  return found;
}

function header(name, size) {
  const block = new Uint8Array(BLOCK);
  const put = (text, at) => block.set(new TextEncoder().encode(text), at);
  put(name, 0);
  put("0000600\0", 100);
  put("0000000\0", 108);
  put("0000000\0", 116);
  if (size < 8 * 2 ** 30) put(`${size.toString(8).padStart(11, "0")}\0`, 124);
  else {
    block[124] = 0x80; // GNU's way to write sizes that octal digits cannot hold
    new DataView(block.buffer).setBigUint64(128, BigInt(size));
  }
  put("00000000000\0", 136);
  put("        0", 148);
  put("ustar  \0", 257);
  const sum = block.reduce((total, byte) => total + byte, 0);
  put(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return block;
}

export function send(method, url, body, code, progress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open(method, url);
    request.setRequestHeader("X-Csrf", code);
    request.setRequestHeader("Accept", "application/json");
    request.upload.addEventListener("progress", (event) => progress?.(event.loaded));
    request.addEventListener("load", () => {
      let answer = {};
      try {
        answer = JSON.parse(request.responseText);
      } catch {
        // said below
      }
      if (request.status < 300) resolve(answer);
      else reject(new Error(answer.message || `the server answered ${request.status}; try again`));
    });
    request.addEventListener("error", () =>
      reject(new Error("the server cannot be reached, or a file changed while it was read; choose again")),
    );
    request.send(body);
  });
}
