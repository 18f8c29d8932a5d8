import assert from "node:assert/strict";
import { test } from "node:test";
import { compareVersions, isSemanticVersion } from "../../lib/base/semantic_version.ts";

test("compareVersions() orders versions as semver does", () => {
  const ordered = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1"];
  const all = [...ordered, "1.0.0", "1.0.10", "1.2.0", "2.0.0"];
  for (const [index, version] of all.entries()) {
    for (const [other, text] of all.entries()) {
      assert.equal(Math.sign(compareVersions(version, text)), Math.sign(index - other), `${version} and ${text}`);
    }
  }
  assert.equal(compareVersions("1.0.0+linux", "1.0.0"), 0);
});

test("isSemanticVersion() takes whole versions alone", () => {
  for (const text of ["0.0.0", "1.2.3-rc.1+build.5", "1.2.3-0.0a.-01+01.00"]) assert.ok(isSemanticVersion(text), text);
  for (
    const text of [
      "",
      "1",
      "1.2",
      "v1.2.3",
      "1.2.3 ",
      "01.2.3",
      "1.2.3-",
      "1.2.3-a..b",
      "1.2.9999999999",
      "1.2.3-01",
      "1.2.3-a.00",
      "1.2.3+a..b",
      "1.2.3+.",
    ]
  ) {
    assert.ok(!isSemanticVersion(text), text);
  }
  assert.throws(() => compareVersions("1.0.0", "new"), TypeError);
});
