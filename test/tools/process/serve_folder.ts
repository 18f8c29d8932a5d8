import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import type { RequestListener } from "node:http";
import { join, normalize } from "node:path";
import { gzipSync } from "node:zlib";

/** Returns a listener that answers with the files of a folder. */
export function serveFolder(folder: string): RequestListener {
  return (request, response) => {
    const { pathname } = new URL(request.url ?? "/", "http://folder.test");
    try {
      response.end(readFileSync(join(folder, normalize(pathname))));
    } catch {
      response.writeHead(404).end();
    }
  };
}

/** Returns an npm package with nothing but its package.json, and the integrity that a registry names for it. */
export function packagedModule(
  name: string,
  version: string,
): { readonly tarball: Uint8Array; readonly integrity: string } {
  const content = Buffer.from(JSON.stringify({ name, version }));
  const header = Buffer.alloc(512);
  header.write("package/package.json", 0);
  header.write("0000644\0", 100);
  header.write("0000000\0", 108);
  header.write("0000000\0", 116);
  header.write(`${content.length.toString(8).padStart(11, "0")}\0`, 124);
  header.write("00000000000\0", 136);
  header.write("        ", 148);
  header.write("0", 156);
  header.write("ustar\u000000", 257);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  const padding = Buffer.alloc((512 - content.length % 512) % 512 + 1024);
  const tarball = gzipSync(Buffer.concat([header, content, padding]));
  return { tarball, integrity: `sha512-${createHash("sha512").update(tarball).digest("base64")}` };
}
