import type { WorkBudget } from "../documents/work_budget.ts";
import { hasLineNumbers, isCodeBlock } from "./code_block.ts";
import { elementsIn, htmlAttribute, type HtmlElement, isElement, textInside } from "./parse_html.ts";

/** Cells of a row by column. undefined: a cell of another row or column reaches in here. */
export type TableRow = readonly (HtmlElement | undefined)[];

/** Table of a page. `layout`: it only places blocks, and has its cells in the order of the page. */
export type HtmlTable =
  & { readonly caption: HtmlElement | undefined }
  & (
    | { readonly kind: "layout"; readonly cells: readonly HtmlElement[] }
    | {
      readonly kind: "data";
      readonly rows: readonly TableRow[];
      readonly columns: number;
      /** The first row names the columns */
      readonly hasHeader: boolean;
    }
  );

/** A table with more columns is written cell by cell, since nobody can read it as a table. */
const MAX_COLUMNS = 60;
const MAX_ROWSPAN = 1000;
/** Blocks that a cell of Markdown cannot have. */
const TOO_BIG = /^(?:table|h[1-6]|blockquote|hr|form)$/;
/** Lines of code that a cell can have, in a table that names its columns. */
const MAX_CODE_LINES = 20;

/** Reads a table. `colspan` and `rowspan` are bounded whatever the page says. */
export function readTable(table: HtmlElement, dropped: ReadonlySet<HtmlElement>, budget: WorkBudget): HtmlTable {
  const rows = rowsOf(table, dropped, budget);
  const caption = table.children.find((child): child is HtmlElement => isElement(child) && child.tag === "caption");
  const cells = rows.flat();
  const grid = placeCells(rows, budget);
  const columns = grid.reduce((most, row) => Math.max(most, row.length), 0);
  const hasHeader =
    grid[0]?.every((cell) => cell === undefined || cell.tag === "th" || cell.parent?.parent?.tag === "thead") ?? false;
  const isBig = (inside: HtmlElement) =>
    TOO_BIG.test(inside.tag) || (isCodeBlock(inside) && !(hasHeader && isShortCode(inside)));
  const isLayout = grid.length < 2 || columns < 2 || columns > MAX_COLUMNS ||
    htmlAttribute(table, "role") === "presentation" ||
    cells.some((cell) => elementsIn(cell).some(isBig));
  if (isLayout) return { kind: "layout", caption, cells };
  return { kind: "data", caption, rows: grid, columns, hasHeader };
}

/** Tells whether code fits into a cell. A column of line numbers makes a table that only places its code. */
function isShortCode(code: HtmlElement): boolean {
  return !hasLineNumbers(code) && textInside(code).split("\n", MAX_CODE_LINES + 2).length <= MAX_CODE_LINES + 1;
}

function rowsOf(table: HtmlElement, dropped: ReadonlySet<HtmlElement>, budget: WorkBudget): HtmlElement[][] {
  const rows: HtmlElement[][] = [];
  const visit = ({ children }: HtmlElement) => {
    for (const child of children) {
      budget.step(4);
      if (!isElement(child) || dropped.has(child)) continue;
      if (child.tag === "tr") {
        rows.push(
          child.children.filter((cell): cell is HtmlElement =>
            isElement(cell) && (cell.tag === "td" || cell.tag === "th") && !dropped.has(cell)
          ),
        );
      } else if (/^(?:thead|tbody|tfoot)$/.test(child.tag)) visit(child);
    }
  };
  visit(table);
  return rows.filter((row) => row.length > 0);
}

/** Puts cells into columns, after the cells of earlier rows that reach down. */
function placeCells(rows: readonly (readonly HtmlElement[])[], budget: WorkBudget): TableRow[] {
  /** Rows that a cell above still takes, by column */
  let reaching: number[] = [];
  return rows.map((cells) => {
    const placed: (HtmlElement | undefined)[] = [];
    const next: number[] = [];
    const place = (cell: HtmlElement | undefined, rest: number) => {
      budget.step(4);
      next[placed.length] = rest;
      placed.push(cell);
    };
    const skipTaken = () => {
      for (let rest = reaching[placed.length] ?? 0; rest > 0; rest = reaching[placed.length] ?? 0) {
        place(undefined, rest - 1);
      }
    };
    for (const cell of cells) {
      skipTaken();
      const down = spanOf(cell, "rowspan", MAX_ROWSPAN) - 1;
      const across = spanOf(cell, "colspan", MAX_COLUMNS);
      for (let i = 0; i < across; i++) place(i === 0 ? cell : undefined, down);
    }
    skipTaken();
    reaching = next;
    return placed;
  });
}

function spanOf(cell: HtmlElement, name: string, most: number): number {
  const span = Number.parseInt(htmlAttribute(cell, name) ?? "1", 10);
  return span >= 1 ? Math.min(span, most) : 1;
}
