import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { PROJECT_ROOT } from "../support/source_files.ts";

test("the bill of materials is the same each time, and has what the package installs and nothing else", () => {
  const make = () => execFileSync("node", ["scripts/sbom.ts"], { cwd: PROJECT_ROOT, encoding: "utf8" });
  const text = make();
  assert.equal(make(), text);
  const { bomFormat, serialNumber, metadata, components } = JSON.parse(text);
  assert.equal(bomFormat, "CycloneDX");
  assert.match(serialNumber, /^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.deepEqual([metadata.timestamp, metadata.component.name], [undefined, "postern"]);
  const { dependencies, devDependencies } = JSON.parse(readFileSync(join(PROJECT_ROOT, "package.json"), "utf8"));
  const listed = new Set(components.map(({ name, version }: Record<string, string>) => `${name}@${version}`));
  for (const [name, range] of Object.entries<string>(dependencies)) {
    assert.ok(listed.has(`${name}@${range.replace("~", "")}`), name);
  }
  for (const [name, version] of Object.entries(devDependencies)) assert.ok(!listed.has(`${name}@${version}`), name);
});
