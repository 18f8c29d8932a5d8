import process from "node:process";

/** Documents whose text would be longer than any string may be: what bounds a paragraph shows only there. */
process.env["TRIES"] = "28";
await import("./docx_read.test.ts");
