// Plain JavaScript: it must run on the old Node it turns away. Preloaded by the npm scripts.
const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
if (major < 22 || (major === 22 && minor < 19)) {
  console.error(
    `Cannot run Postern on Node ${process.versions.node}: it needs 22.19 or newer. ` +
      "On Linux and Windows the project brings its own Node: run `npm ci`, then use `npm run ...` or `npm start`",
  );
  process.exit(1);
}
// Messages of the program say what starts it from here
if (/[\\/]cli[\\/]main\.ts$/.test(process.argv[1] ?? "")) {
  process.env.POSTERN_PROGRAM ??= process.platform === "win32" ? "npm run postern --" : "./postern";
}
