// Parts of a page against small pictures of them: a dot of one is the mean colour of a cell of the other.
(async (shot, parts, wanted) => {
  // So wide and high is a cell, in pixels.
  const CELL = 16;
  // So much differs a cell at least, of 255 in one of its colours. What is shifted by one pixel differs by a 16th of the contrast at its
  // edges (255 / 16 = 16), and a line of 1.5 pixels by a 10th of its own.
  const APART = 20;
  const picture = async (text) => createImageBitmap(new Blob([Uint8Array.from(atob(text), (one) => one.charCodeAt(0))]));
  const pixels = (image, x, y, w, h) => {
    const canvas = new OffscreenCanvas(w, h), g = canvas.getContext("2d", { willReadFrequently: true });
    g.drawImage(image, -x, -y);
    return g.getImageData(0, 0, w, h);
  };
  const page = await picture(shot), answers = [];
  for (const { name, box } of parts) {
    const [x, y, w, h] = box, wide = Math.max(1, Math.round(w / CELL)), high = Math.max(1, Math.round(h / CELL));
    const { data } = pixels(page, x, y, wide * CELL, high * CELL), small = new ImageData(wide, high);
    for (let row = 0; row < high; row++) for (let column = 0; column < wide; column++) {
      const sum = [0, 0, 0];
      for (let dy = 0; dy < CELL; dy++) for (let dx = 0; dx < CELL; dx++) {
        const at = ((row * CELL + dy) * wide * CELL + column * CELL + dx) * 4;
        for (let c = 0; c < 3; c++) sum[c] += data[at + c];
      }
      small.data.set([...sum.map((one) => Math.round(one / CELL / CELL)), 255], (row * wide + column) * 4);
    }
    const canvas = new OffscreenCanvas(wide, high);
    canvas.getContext("2d").putImageData(small, 0, 0);
    const bytes = new Uint8Array(await (await canvas.convertToBlob({ type: "image/png" })).arrayBuffer());
    const answer = { name, size: [wide, high], png: btoa(String.fromCharCode(...bytes)) };
    answers.push(answer);
    if (!wanted[name]) continue;
    const before = await picture(wanted[name]), known = pixels(before, 0, 0, before.width, before.height);
    answer.known = [before.width, before.height];
    // A part that is a cell higher has one more row; all that is missing on either side differs.
    const columns = Math.max(wide, before.width), rows = Math.max(high, before.height);
    let differ = 0;
    for (let row = 0; row < rows; row++) for (let column = 0; column < columns; column++) {
      const is = row < high && column < wide, was = row < before.height && column < before.width;
      const of = (data, width) => data.slice((row * width + column) * 4, (row * width + column) * 4 + 3);
      if (!is || !was) { differ++; continue; }
      const a = of(small.data, wide), b = of(known.data, before.width);
      if (Math.max(...[0, 1, 2].map((c) => Math.abs(a[c] - b[c]))) > APART) differ++;
    }
    answer.share = differ / (rows * columns);
  }
  return answers;
})
