/** What has pieces to hand on. */
export interface PieceSource {
  /** Hands on all that has come by now */
  deliver(): void;
}

/** Pieces that one turn of the event loop hands on: about a quarter of a millisecond of work. */
const PIECES_PER_TURN = 4;

let given = 0;
let waiting: PieceSource[] = [];

/**
 * Hands on what has come for `source`, now or in one of the next turns of the event loop: a turn takes in one new connection (libuv),
 * so a thousand replies that are worked on in each would keep new clients waiting for seconds. What comes for one source while it
 * waits goes out in one piece.
 * @returns whether it was handed on at once; do not ask again for a source that waits
 */
export function deliverInTurn(source: PieceSource): boolean {
  if (given >= PIECES_PER_TURN) {
    waiting.push(source);
    return false;
  }
  if (given++ === 0) setImmediate(nextTurn);
  source.deliver();
  return true;
}

function nextTurn(): void {
  const due = waiting.length > PIECES_PER_TURN ? waiting.splice(0, PIECES_PER_TURN) : waiting;
  if (due === waiting) waiting = [];
  given = due.length;
  if (given > 0) setImmediate(nextTurn);
  for (const source of due) source.deliver();
}
