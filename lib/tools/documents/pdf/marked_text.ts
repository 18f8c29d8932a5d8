import type { TextLayout, TextPiece } from "./text_layout.ts";

const MAX_MARKS = 200;

/** Puts pieces into a layout; where marks say what the pieces mean, that in their place. Source: ISO 32000-2, sections 14.6 and 14.9.4 */
export interface MarkedText {
  /** @param replacement the text of all that follows, up to the end of the mark; undefined: the pieces speak for themselves */
  begin(replacement: string | undefined): void;
  end(): void;
  /** Ends the marks that were left open */
  close(): void;
  add(piece: TextPiece): void;
}

interface Mark {
  readonly replacement: string | undefined;
  drawn: TextPiece | undefined;
}

export function createMarkedText(layout: TextLayout): MarkedText {
  const marks: Mark[] = [];
  const end = () => {
    const mark = marks.pop();
    if (mark?.drawn !== undefined) layout.add({ ...mark.drawn, text: mark.replacement ?? "" });
  };
  return {
    begin(replacement) {
      if (marks.length < MAX_MARKS) marks.push({ replacement, drawn: undefined });
    },
    end,
    close() {
      while (marks.length > 0) end();
    },
    add(piece) {
      // The outermost replacement stands for those inside it
      const mark = marks.find(({ replacement }) => replacement !== undefined);
      if (mark === undefined) layout.add(piece);
      else mark.drawn = mark.drawn === undefined ? piece : { ...mark.drawn, end: piece.end };
    },
  };
}
