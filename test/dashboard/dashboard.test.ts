import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { describe, test } from "node:test";
import { loadDashboard } from "../../lib/dashboard/dashboard.ts";

const PAGE = new URL("../../lib/dashboard/page/", import.meta.url);
const SCRIPTS = readdirSync(PAGE).filter((file) => file.endsWith(".js"));

const hashOf = (text: string) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
const between = (html: string, open: string, close: string) => {
  const parts = html.split(open);
  assert.equal(parts.length, 2, `${open} stands once`);
  return (parts[1] ?? "").split(close)[0] ?? "";
};

describe("loadDashboard()", () => {
  test("allows exactly the style and the script that are in the page", async () => {
    const { html, contentSecurityPolicy } = await loadDashboard();
    const script = hashOf(between(html, '<script type="module">', "</script>"));
    const style = hashOf(between(html, "<style>", "</style>"));
    assert.deepEqual(contentSecurityPolicy.split("; "), [
      "default-src 'none'",
      `script-src ${script}`,
      `style-src ${style}`,
      "connect-src 'self'",
      "img-src data:",
      "base-uri 'none'",
      "form-action 'none'",
      "frame-ancestors 'none'",
    ]);
  });

  test("names no other place: no address but data: and its own", async () => {
    const { html } = await loadDashboard();
    const addresses = [...html.matchAll(/(?:src|href)="([^"]*)"|url\(([^)]*)\)/g)].map(([, a, b]) => a ?? b ?? "");
    assert.deepEqual(addresses.filter((address) => !/^(data:image\/svg\+xml,|#)/.test(address)), []);
    assert.deepEqual([...html.matchAll(/\b(?:fetch|new WebSocket)\(([a-zA-Z(]+)/g)].map(([, what]) => what), [
      "addressOf(path",
      "address",
      "addressOf(",
    ]);
  });

  test("holds every module of the page once, without imports left", async () => {
    const { html } = await loadDashboard();
    assert.equal(html.match(/^const \{.*\} = \(\(\) => \{$/gm)?.length, SCRIPTS.length);
    assert.doesNotMatch(html, /^\s*(import|export)\s/m);
  });

  test("never turns data into markup or code", () => {
    for (const file of SCRIPTS) {
      const text = readFileSync(new URL(file, PAGE), "utf8");
      assert.doesNotMatch(
        text,
        /innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|DOMParser/,
        file,
      );
      assert.doesNotMatch(text, /document\.cookie|indexedDB/, file);
      // The token alone is kept in the browser
      if (file !== "session.js") assert.doesNotMatch(text, /localStorage/, file);
    }
  });

  test("labels every field", async () => {
    const { html } = await loadDashboard();
    const ids = [...html.matchAll(/<(?:input|textarea|select)\b[^>]*?\bid="([^"]+)"/g)].map(([, id]) => id);
    assert.ok(ids.length >= 5);
    for (const id of ids) assert.ok(html.includes(`<label for="${id}"`) || html.includes(`for="${id}">`), id);
  });
});

describe("the page's colours", () => {
  const [light, dark] = readFileSync(new URL("style.css", PAGE), "utf8").split("@media (prefers-color-scheme: dark)");
  const themes = { light: paletteOf(light ?? ""), dark: paletteOf((dark ?? "").slice(0, 900)) };
  const pairs = [
    ["text", "page"],
    ["text", "surface"],
    ["text", "sunken"],
    ["text", "accent-soft"],
    ["muted", "page"],
    ["muted", "surface"],
    ["muted", "sunken"],
    ["accent", "surface"],
    ["accent", "page"],
    ["accent-strong", "accent-soft"],
    ["on-accent", "accent"],
    ["on-accent", "accent-strong"],
    ["bad", "surface"],
    ["bad", "bad-soft"],
    ["warn", "warn-soft"],
    ["warn", "surface"],
    ["text", "warn-soft"],
    ["muted", "warn-soft"],
    ["bad", "warn-soft"],
  ] as const;

  for (const [name, palette] of Object.entries(themes)) {
    test(`keep the contrast of WCAG AA in the ${name} theme`, () => {
      for (const [ink, ground] of pairs) {
        const contrast = contrastOf(palette.get(ink) ?? "", palette.get(ground) ?? "");
        assert.ok(contrast >= 4.5, `${ink} on ${ground}: ${contrast.toFixed(2)}`);
      }
      assert.ok(contrastOf(palette.get("line-strong") ?? "", palette.get("surface") ?? "") >= 3, "edges of fields");
    });
  }
});

function paletteOf(css: string): ReadonlyMap<string, string> {
  return new Map([...css.matchAll(/--([a-z-]+): (#[0-9a-f]{6});/g)].map(([, name = "", value = ""]) => [name, value]));
}

/** Source: WCAG 2.2, relative luminance and contrast ratio */
function contrastOf(a: string, b: string): number {
  const [light = 0, dark = 0] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (light + 0.05) / (dark + 0.05);
}

function luminance(color: string): number {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => {
    const part = parseInt(color.slice(at, at + 2), 16) / 255;
    return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
