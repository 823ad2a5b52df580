// SHA-256, piece by piece: of files that are too large to be held at once, and where the browser offers no SubtleCrypto
// because the console is reached without TLS.
const WHOLE = 32 * 2 ** 20;
const PIECE = 2 ** 20;
const K = new Uint32Array(64);
const START = new Uint32Array(8);

// Constants are the fractions of the roots of the first primes.
for (let n = 2, count = 0; count < 64; n++) {
  let prime = true;
  for (let d = 2; d * d <= n; d++) if (n % d === 0) prime = false;
  if (!prime) continue;
  if (count < 8) START[count] = (Math.sqrt(n) % 1) * 2 ** 32;
  K[count++] = (Math.cbrt(n) % 1) * 2 ** 32;
}

export async function sha256(file, told) {
  if (crypto.subtle && file.size <= WHOLE) {
    const found = await crypto.subtle.digest("SHA-256", await file.arrayBuffer());
    told(file.size);
    return hex(new DataView(found));
  }
  return pieces(file, told);
}

export async function pieces(file, told = () => {}) {
  const state = START.slice();
  let rest = new Uint8Array(0);
  for (let at = 0; at < file.size; at += PIECE) {
    const piece = new Uint8Array(await file.slice(at, at + PIECE).arrayBuffer());
    told(piece.length);
    rest = join(rest, piece);
    const whole = rest.length - (rest.length % 64);
    blocks(state, rest.subarray(0, whole));
    rest = rest.slice(whole);
  }
  const end = new Uint8Array(rest.length < 56 ? 64 : 128);
  end.set(rest);
  end[rest.length] = 0x80;
  new DataView(end.buffer).setBigUint64(end.length - 8, BigInt(file.size) * 8n);
  blocks(state, end);
  const found = new DataView(new ArrayBuffer(32));
  state.forEach((word, n) => found.setUint32(4 * n, word));
  return hex(found);
}

function join(first, second) {
  if (!first.length) return second;
  const both = new Uint8Array(first.length + second.length);
  both.set(first);
  both.set(second, first.length);
  return both;
}

function hex(view) {
  let text = "";
  for (let n = 0; n < 32; n++) text += view.getUint8(n).toString(16).padStart(2, "0");
  return text;
}

function blocks(state, bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const w = new Int32Array(64);
  for (let at = 0; at < bytes.length; at += 64) {
    for (let n = 0; n < 16; n++) w[n] = view.getInt32(at + 4 * n);
    for (let n = 16; n < 64; n++) {
      const x = w[n - 15];
      const y = w[n - 2];
      const s = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
      const t = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
      w[n] = (w[n - 16] + s + w[n - 7] + t) | 0;
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let n = 0; n < 64; n++) {
      const s = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
      const one = (h + s + ((e & f) ^ (~e & g)) + K[n] + w[n]) | 0;
      const t = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
      const two = (t + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g;
      g = f;
      f = e;
      e = (d + one) | 0;
      d = c;
      c = b;
      b = a;
      a = (one + two) | 0;
    }
    [a, b, c, d, e, f, g, h].forEach((word, n) => (state[n] += word));
  }
}
