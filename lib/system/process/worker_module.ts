/**
 * The module of a thread, beside the module that starts it: as source it is TypeScript, as a package JavaScript.
 * @param importer `import.meta.url` of the module that starts it
 * @param name without its ending, as `document_worker`
 */
export function workerModule(importer: string, name: string): URL {
  return new URL(`./${name}.${importer.endsWith(".ts") ? "ts" : "js"}`, importer);
}
