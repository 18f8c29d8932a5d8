import type { Frame, Page } from "playwright-core";

/** Time of one operation on a page. */
interface Limits {
  readonly timeout: number;
  readonly signal: AbortSignal;
}

/** Frames of a page that are read. */
const MAX_FRAMES = 50;
/** Milliseconds for one frame, so that one that hangs does not keep the page's own text away */
const FRAME_MS = 3000;

/** Returns the text that the readers of a page see: its own with that of open shadow trees, then that of each visible frame. */
export async function visibleText(page: Page, limits: Limits): Promise<string> {
  const [main, ...frames] = page.frames();
  const own = main === undefined ? "" : textOf(main, limits);
  const short = { ...limits, timeout: Math.min(limits.timeout, FRAME_MS) };
  const others = frames.slice(0, MAX_FRAMES).map(async (frame) => {
    // A frame may leave meanwhile
    if (!await isVisible(frame).catch(() => false)) return "";
    const text = await textOf(frame, short).catch(() => "[This frame did not answer]");
    return text.trim() === "" ? "" : `\n\n[Frame ${JSON.stringify(frame.url())}]\n${text}`;
  });
  const more = frames.length > MAX_FRAMES ? `\n\n[${frames.length - MAX_FRAMES} more frames were not read]` : "";
  return [await own, ...await Promise.all(others), more].join("");
}

/** Waits until a text is visible in the page or in one of its frames. Open shadow trees count. @throws an error of playwright when it is not in time */
export async function waitForText(page: Page, text: string, { timeout, signal }: Limits): Promise<void> {
  const found = Promise.withResolvers<void>();
  const ended = new AbortController();
  const limits = { timeout, signal: AbortSignal.any([signal, ended.signal]), state: "visible" as const };
  const look = (frame: Frame) => {
    const isMain = frame === page.mainFrame();
    frame.getByText(text).first().waitFor(limits).then(found.resolve, (error) => isMain && found.reject(error));
  };
  page.on("frameattached", look);
  for (const frame of page.frames()) look(frame);
  try {
    await found.promise;
  } finally {
    page.off("frameattached", look);
    ended.abort();
  }
}

async function isVisible(frame: Frame): Promise<boolean> {
  const element = await frame.frameElement();
  return await element.isVisible();
}

/** Part of a node in the page, as `textOf` needs it. */
interface PageNode {
  readonly nodeType: number;
  readonly nodeName: string;
  readonly textContent: string | null;
  readonly innerText: string;
  readonly shadowRoot: PageNode | null;
  readonly childNodes: Iterable<PageNode>;
  assignedNodes(): Iterable<PageNode>;
  querySelectorAll(selector: string): ArrayLike<PageNode>;
}

function textOf(frame: Frame, limits: Limits): Promise<string> {
  return frame.locator("body").evaluate(
    (found) => {
      // The code of this function runs in the page
      const page = globalThis as unknown as {
        getComputedStyle(node: PageNode): { display: string; visibility: string };
      };
      const isSlot = ({ nodeName }: PageNode) => nodeName === "SLOT";
      const isDeep = (node: PageNode) =>
        node.shadowRoot !== null || isSlot(node) ||
        Array.from(node.querySelectorAll("*")).some((inside) => inside.shadowRoot !== null || isSlot(inside));
      const seen = (node: PageNode, isShown: boolean): string => {
        if (node.nodeType === 3) return isShown ? (node.textContent ?? "").replace(/\s+/g, " ") : "";
        if (node.nodeType !== 1 || /^(?:SCRIPT|STYLE|NOSCRIPT|TEMPLATE)$/.test(node.nodeName)) return "";
        const { display, visibility } = page.getComputedStyle(node);
        if (display === "none") return "";
        const children = isSlot(node) ? Array.from(node.assignedNodes()) : [];
        const inside = isDeep(node)
          ? (children.length > 0 ? children : Array.from((node.shadowRoot ?? node).childNodes))
            .map((child) => seen(child, visibility === "visible")).join("")
          : node.nodeName === "BR"
          ? "\n"
          : node.innerText ?? "";
        return /^(?:inline|contents)/.test(display) ? inside : `\n${inside}\n`;
      };
      const body = found as unknown as PageNode; // an element of the page, whose types Node does not have
      if (!isDeep(body)) return body.innerText;
      const lines = seen(body, true).split("\n").map((line) => line.trim());
      return lines.join("\n").replace(/\n{3,}/g, "\n\n").trim();
    },
    undefined,
    limits,
  );
}
