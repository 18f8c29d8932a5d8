import type { WorkBudget } from "../work_budget.ts";
import type { PdfFile } from "./open_pdf.ts";
import { EMPTY_DICT, isKind, type PdfDict, type PdfObject } from "./pdf_object.ts";

const MAX_PAGES = 100_000;
const MAX_DEPTH = 100;

/** A page, with what it takes from the nodes above it. */
export interface Page {
  readonly dict: PdfDict;
  readonly resources: PdfDict;
}

/** All pages in order. What leads in a circle is left out. Source: ISO 32000-2, section 7.7.3 */
export function listPages({ reader, catalog }: PdfFile, budget: WorkBudget): readonly Page[] {
  const pages: Page[] = [];
  const visited = new Set<PdfObject>();
  const visit = (object: PdfObject, inherited: PdfDict, depth: number): void => {
    const node = reader.resolve(object);
    if (!isKind(node, "dict") || visited.has(node) || depth > MAX_DEPTH || pages.length >= MAX_PAGES) return;
    visited.add(node);
    budget.step(20);
    const resources = reader.dict(node, "Resources") ?? inherited;
    if (!node.entries.has("Kids")) {
      pages.push({ dict: node, resources });
      return;
    }
    for (const kid of reader.array(node, "Kids")) visit(kid, resources, depth + 1);
  };
  visit(reader.get(catalog, "Pages"), EMPTY_DICT, 0);
  return pages;
}
