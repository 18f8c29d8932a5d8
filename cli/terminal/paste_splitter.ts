import { StringDecoder } from "node:string_decoder";

const BEGIN = "\x1b[200~";
const END = "\x1b[201~";
/** Most characters of one paste. A longer paste is delivered in parts */
const MAX_PASTE = 16_777_216;

/**
 * Creates a splitter that tells pasted text from keys in the bytes of a terminal with bracketed paste, wherever the chunks are cut.
 * Source: https://invisible-island.net/xterm/ctlseqs/ctlseqs.html "Bracketed Paste Mode"
 */
export function createPasteSplitter(
  { onKeys, onPaste }: { readonly onKeys: (keys: string) => void; readonly onPaste: (text: string) => void },
): { push(bytes: Uint8Array): void } {
  const decoder = new StringDecoder("utf8");
  let rest = "";
  let inPaste = false;
  let pasted: string[] = [];
  let length = 0;

  const give = (text: string) => {
    if (text === "") return;
    if (!inPaste) return onKeys(text);
    pasted.push(text);
    length += text.length;
    if (length > MAX_PASTE) flush();
  };
  const flush = () => {
    const text = pasted.join("");
    pasted = [];
    length = 0;
    if (text !== "") onPaste(text);
  };

  return {
    push(bytes) {
      let text = rest + decoder.write(Buffer.from(bytes));
      for (;;) {
        const mark = inPaste ? END : BEGIN;
        const at = text.indexOf(mark);
        if (at === -1) break;
        give(text.slice(0, at));
        if (inPaste) flush();
        inPaste = !inPaste;
        text = text.slice(at + mark.length);
      }
      const kept = beginningOf(inPaste ? END : BEGIN, text);
      give(text.slice(0, text.length - kept));
      rest = text.slice(text.length - kept);
    },
  };
}

/** Returns how many characters at the end of `text` may be the beginning of `mark`. */
function beginningOf(mark: string, text: string): number {
  for (let length = Math.min(mark.length - 1, text.length); length > 0; length--) {
    if (text.endsWith(mark.slice(0, length))) return length;
  }
  return 0;
}
