/** Bytes at the beginning of a page in which its encoding is looked for. Browsers read on to a `meta` behind the first 1,024, too. */
const PRESCAN_BYTES = 65_536;
/** Characters of the name of an encoding. */
const MAX_LABEL = 40;

/** Text of a page, with the encoding that was used. */
export interface DecodedPage {
  readonly text: string;
  /** As `utf-8` or `shift_jis` */
  readonly encoding: string;
}

/**
 * Decodes the bytes of a page: by its byte order mark, the charset of the reply, or what its head says (`meta` of HTML, the
 * declaration of XML). Where none says, it is UTF-8 if it can be, else windows-1252, as in browsers.
 * @param charset from the Content-Type of the reply. undefined: none
 * Source: HTML Living Standard, section 13.2.3; Encoding Standard
 */
export function decodePage(bytes: Uint8Array, charset: string | undefined): DecodedPage {
  const encoding = markOf(bytes) ?? decoderOf(charset) ?? decoderOf(declaredIn(bytes));
  if (encoding !== undefined) return { text: new TextDecoder(encoding).decode(bytes), encoding };
  try {
    // A page that was cut may end in the middle of a character
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: true });
    return { text, encoding: "utf-8" };
  } catch {
    return { text: new TextDecoder("windows-1252").decode(bytes), encoding: "windows-1252" };
  }
}

/** Returns the charset parameter of a Content-Type. */
export function charsetOf(contentType: string | undefined): string | undefined {
  return /;\s*charset\s*=\s*["']?([^\s"';]{1,40})/i.exec(contentType?.slice(0, 500) ?? "")?.[1];
}

function markOf(bytes: Uint8Array): string | undefined {
  if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) return "utf-8";
  if (bytes[0] === 0xfe && bytes[1] === 0xff) return "utf-16be";
  if (bytes[0] === 0xff && bytes[1] === 0xfe) return "utf-16le";
  return undefined;
}

/** Returns the encoding that a label stands for. undefined for a label that is none. */
function decoderOf(label: string | undefined): string | undefined {
  if (label === undefined || label.length > MAX_LABEL) return undefined;
  try {
    return new TextDecoder(label).encoding;
  } catch {
    return undefined;
  }
}

function declaredIn(bytes: Uint8Array): string | undefined {
  const head = new TextDecoder("windows-1252").decode(bytes.subarray(0, PRESCAN_BYTES));
  const xml = /^\s*<\?xml\s[^>]*?encoding\s*=\s*["']([^"'\s]{1,40})/i.exec(head)?.[1];
  const label = xml ?? declaredByMeta(head.split(/<body[\s>]/i, 1)[0] ?? "");
  // A page that can be read so far is not in UTF-16, whatever it says
  return label !== undefined && /^utf-?16/i.test(label) ? "utf-8" : label;
}

function declaredByMeta(head: string): string | undefined {
  for (
    const [, , attributes] of head.matchAll(
      /<!--[^]*?(?:-->|$)|<(script|style|title)[\s>][^]*?(?:<\/\1|$)|<meta[\s/]([^>]*)/gi,
    )
  ) {
    const charset = /(?:^|[\s/;"'])charset\s*=\s*["']?\s*([^\s"'/>;]{1,40})/i.exec(attributes ?? "")?.[1];
    if (charset !== undefined) return charset;
  }
  return undefined;
}
