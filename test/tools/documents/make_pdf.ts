/** An object after the page tree: a text, or a dictionary with a stream, whose length is filled in unless it says one. */
export type PdfPart = string | { readonly dict: string; readonly stream: string | Uint8Array };

export interface PdfParts {
  /** Operators of the first page */
  readonly contents?: string;
  /** Inside the first page's `/Resources`; font F1 is Helvetica in any case */
  readonly resources?: string;
  readonly fonts?: string;
  /** Objects from number 10 on */
  readonly parts?: readonly PdfPart[];
  /** In place of the page tree with one page */
  readonly pages?: string;
  /** Entries of the page */
  readonly page?: string;
  /** Entries of the trailer */
  readonly trailer?: string;
}

/** A PDF file of hand-written parts; strings are taken as one byte a character. */
export function makePdf(given: PdfParts): Uint8Array<ArrayBuffer> {
  const { contents = "", resources = "", fonts = "", parts = [], pages, page = "", trailer = "" } = given;
  const objects = new Map<number, PdfPart>([
    [1, "<< /Type /Catalog /Pages 2 0 R >>"],
    [2, pages ?? "<< /Type /Pages /Kids [3 0 R] /Count 1 >>"],
    [
      3,
      `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 4 0 R ${page}
/Resources << /Font << /F1 5 0 R ${fonts} >> ${resources} >> >>`,
    ],
    [4, { dict: "", stream: contents }],
    [5, "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"],
    ...parts.map((part, i) => [10 + i, part] as const),
  ]);
  const chunks: Uint8Array[] = [Buffer.from("%PDF-1.7\n")];
  let offset = chunks[0]?.length ?? 0;
  const offsets: string[] = [];
  const put = (bytes: Uint8Array) => {
    chunks.push(bytes);
    offset += bytes.length;
  };
  for (const [number, part] of objects) {
    offsets.push(`${number} 1\n${String(offset).padStart(10, "0")} 00000 n \n`);
    const body = typeof part === "string" ? Buffer.from(part, "latin1") : streamOf(part);
    put(Buffer.concat([Buffer.from(`${number} 0 obj\n`), body, Buffer.from("\nendobj\n")]));
  }
  const start = offset;
  put(
    Buffer.from(
      `xref\n${offsets.join("")}trailer\n<< /Size 100 /Root 1 0 R ${trailer} >>\nstartxref\n${start}\n%%EOF\n`,
      "latin1",
    ),
  );
  return new Uint8Array(Buffer.concat(chunks));
}

/** Operators that show a line of text. */
export function textLine(text: string): string {
  return `BT /F1 12 Tf 50 700 Td (${text}) Tj ET`;
}

function streamOf({ dict, stream }: Exclude<PdfPart, string>): Uint8Array {
  const bytes = Buffer.from(stream as string, "latin1");
  const length = /\/Length\b/.test(dict) ? "" : `/Length ${bytes.length}`;
  return Buffer.concat([Buffer.from(`<< ${dict} ${length} >>\nstream\n`), bytes, Buffer.from("\nendstream")]);
}
