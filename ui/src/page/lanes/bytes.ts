// From the text in a page to bytes, and from bytes to columns of numbers.

// crates/report/src/embed.rs has the same.
const DIGITS =
  "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%()*+,-.:;=?@[]^_{|}";

// Four bytes of five digits.
function fromBase85(text: string): Uint8Array<ArrayBuffer> {
  const value = new Uint8Array(128);
  for (let i = 0; i < DIGITS.length; i++) value[DIGITS.charCodeAt(i)] = i;
  const all = new Uint8Array(Math.ceil(text.length / 5) * 4), view = new DataView(all.buffer);
  for (let i = 0, to = 0; i < text.length; i += 5, to += 4) {
    let four = 0;
    for (let k = i; k < i + 5; k++) four = four * 85 + (k < text.length ? value[text.charCodeAt(k)] : 84);
    view.setUint32(to, four);
  }
  return all.subarray(0, Math.floor(text.length * 4 / 5));
}

export async function inflate(base85: string): Promise<Uint8Array> {
  if (typeof DecompressionStream === "undefined") {
    throw new Error("lanes need Chrome 103, Firefox 113, Safari 16.4 or later");
  }
  const inflated = new Blob([fromBase85(base85)]).stream()
    .pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(inflated).arrayBuffer());
}

// A column's numbers, one after the other.
export class Column {
  private at = 0;

  constructor(private readonly all: Float64Array) {}

  get length(): number {
    return this.all.length;
  }

  next(): number {
    return this.all[this.at++];
  }
}

// How the numbers of a column are written: crates/report/src/lanes/pack.rs.
const AS_DIGITS = 1;

export class Reader {
  private at = 0;

  constructor(private readonly bytes: Uint8Array) {}

  // In groups of seven bits, the lowest first.
  next(): number {
    const { bytes } = this;
    let byte = bytes[this.at++], value = byte & 127;
    for (let factor = 128; byte > 127; factor *= 128) {
      byte = bytes[this.at++];
      value += (byte & 127) * factor;
    }
    return value;
  }

  column(): Column {
    const all = new Float64Array(this.next()), form = this.next();
    if (form === AS_DIGITS) this.digits(all);
    else this.varints(all);
    return new Column(all);
  }

  private varints(all: Float64Array): void {
    const { bytes } = this;
    let { at } = this;
    for (let i = 0; i < all.length; i++) {
      let byte = bytes[at++], value = byte & 127;
      for (let factor = 128; byte > 127; factor *= 128) {
        byte = bytes[at++];
        value += (byte & 127) * factor;
      }
      all[i] = value;
    }
    this.at = at;
  }

  // The number of binary digits of each, then all digits but the first, the lowest first.
  private digits(all: Float64Array): void {
    const { bytes } = this, n = all.length, sizes = this.at;
    let at = sizes + n, held = 0, count = 0;
    for (let i = 0; i < n; i++) {
      let left = bytes[sizes + i] - 1, value = 0, factor = 1;
      if (left < 0) continue;
      while (left > 0) {
        if (count === 0) {
          held = bytes[at++];
          count = 8;
        }
        const take = Math.min(left, count);
        value += (held & (1 << take) - 1) * factor;
        held >>= take;
        count -= take;
        left -= take;
        factor *= 1 << take;
      }
      all[i] = value + factor;
    }
    this.at = at;
  }
}
