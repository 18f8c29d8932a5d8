import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { type AddressInfo, createServer } from "node:net";
import { test } from "node:test";
import {
  noContainedBrowser,
  noUncontainedBrowser,
  openSite,
  refOf,
  runUncontained,
  withBrowserBench,
} from "../../support/browser_bench.ts";
import { launchChromium, NO_CHROMIUM } from "../../support/chromium.ts";
import { until } from "../../support/until.ts";
import { createUrlPolicy } from "../../../lib/system/net/url_policy.ts";

/** Servers of this machine that a page must not reach: they count connections and packets, and note the paths that are asked for. */
async function withCanary(
  use: (canary: {
    readonly port: number;
    readonly paths: () => readonly string[];
    readonly connections: () => number;
    readonly packets: () => number;
  }) => Promise<void>,
): Promise<void> {
  const paths: string[] = [];
  let connections = 0;
  let packets = 0;
  const server = createServer((socket) => {
    connections++;
    socket.on("error", () => {});
    socket.on("data", (data) => {
      const path = /^[A-Z]+ (\S+) HTTP/.exec(data.toString("latin1"))?.[1];
      if (path !== undefined) paths.push(path);
      socket.end("HTTP/1.1 204 No Content\r\naccess-control-allow-origin: *\r\nconnection: close\r\n\r\n");
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  // A server that listens at a port has such an address
  const { port } = server.address() as AddressInfo;
  const udp = createSocket("udp4", () => packets++);
  await new Promise<void>((resolve) => udp.bind(port, "127.0.0.1", resolve));
  try {
    await use({ port, paths: () => paths, connections: () => connections, packets: () => packets });
  } finally {
    udp.close();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  }
}

/** Page that tries every way out to a canary. Each way has a path of its own; `done` appears once all were tried. */
function attackPage(port: number): string {
  const http = `http://127.0.0.1:${port}`;
  return `<!doctype html><title>Attack</title>
<link rel=dns-prefetch href="//prefetch.127.0.0.1.nip.test"><link rel=preconnect href="${http}">
<link rel=prefetch href="${http}/prefetch"><link rel=preload as=script href="${http}/preload">
<link rel=prerender href="${http}/prerender"><link rel=stylesheet href="${http}/css"><link rel=icon href="${http}/icon">
<img src="${http}/img"><img src="file:///etc/passwd"><iframe src="${http}/iframe"></iframe>
<iframe sandbox="allow-scripts" srcdoc="<script>fetch('${http}/sandbox').catch(()=>{});new WebSocket('ws://127.0.0.1:${port}/sandbox-ws')</script>"></iframe>
<iframe src="file:///etc/passwd"></iframe><iframe src="chrome://version"></iframe>
<object data="${http}/object"></object><embed src="${http}/embed"><video src="${http}/video"></video>
<form id=form action="${http}/form" target=inner method=post></form><iframe name=inner></iframe>
<a id=ping href="#x" ping="${http}/ping">x</a><a id=download target=inner href="${http}/download" download>d</a>
<button onclick="window.open('${http}/popup')">Popup</button><script type=speculationrules>{"prefetch":[{"source":"list","urls":["${http}/speculation"]}]}</script>
<script>
const attempt = (work) => { try { Promise.resolve(work()).catch(() => {}); } catch {} };
attempt(() => fetch("${http}/fetch", { mode: "no-cors" }));
attempt(() => fetch("http://localhost:${port}/localhost", { mode: "no-cors" }));
attempt(() => fetch("http://[::1]:${port}/ipv6", { mode: "no-cors" }));
attempt(() => fetch("http://0.0.0.0:${port}/any", { mode: "no-cors" }));
attempt(() => fetch("http://2130706433:${port}/number", { mode: "no-cors" }));
attempt(() => fetch("http://[::ffff:127.0.0.1]:${port}/mapped", { mode: "no-cors" }));
attempt(() => fetch("file:///etc/passwd"));
attempt(() => fetch("${http}/keepalive", { mode: "no-cors", keepalive: true }));
attempt(() => { const request = new XMLHttpRequest(); request.open("GET", "${http}/xhr"); request.send(); });
attempt(() => new WebSocket("ws://127.0.0.1:${port}/ws"));
attempt(() => new EventSource("${http}/eventsource"));
attempt(() => navigator.sendBeacon("${http}/beacon", "x"));
attempt(() => window.open("${http}/popup"));
attempt(() => document.getElementById("form").submit());
attempt(() => document.getElementById("ping").click());
attempt(() => document.getElementById("download").click());
attempt(() => import("${http}/module"));
const inner = "attempt(() => fetch('${http}/worker', { mode: 'no-cors' })); attempt(() => new WebSocket('ws://127.0.0.1:${port}/worker-ws'));" +
  "attempt(() => importScripts('${http}/import'));";
const code = "const attempt = " + attempt + ";" + inner;
attempt(() => new Worker(URL.createObjectURL(new Blob([code]))));
attempt(() => new SharedWorker("data:text/javascript," + encodeURIComponent(code)));
attempt(() => navigator.serviceWorker.register("/service.js"));
attempt(async () => {
  const transport = new WebTransport("https://127.0.0.1:${port}/transport");
  await transport.ready;
});
attempt(async () => {
  const peer = new RTCPeerConnection({ iceServers: [{ urls: "stun:127.0.0.1:${port}" },
    { urls: "turn:127.0.0.1:${port}?transport=tcp", username: "a", credential: "b" }] });
  peer.createDataChannel("x");
  await peer.setLocalDescription(await peer.createOffer());
  await peer.setRemoteDescription({ type: "answer", sdp: peer.localDescription.sdp
    .replace("a=setup:actpass", "a=setup:active") });
});
attempt(async () => {
  const one = new RTCPeerConnection(), two = new RTCPeerConnection();
  one.createDataChannel("x");
  await one.setLocalDescription(await one.createOffer());
  await two.setRemoteDescription(one.localDescription);
  await two.setLocalDescription(await two.createAnswer());
  await one.setRemoteDescription(two.localDescription);
  await one.addIceCandidate({ candidate: "candidate:1 1 udp 2130706431 127.0.0.1 ${port} typ host", sdpMid: "0" });
});
setTimeout(() => { const said = document.createElement("p"); said.textContent = "all was tried"; document.body.append(said); }, 3000);
</script>`;
}

function serviceWorker(port: number): string {
  return `addEventListener("install", () => {
  fetch("http://127.0.0.1:${port}/service", { mode: "no-cors" }).catch(() => {});
  try { new WebSocket("ws://127.0.0.1:${port}/service-ws"); } catch {}
});`;
}

function openAttack(port: number) {
  return openSite({
    "/": attackPage(port),
    "/service.js": (_request, response) => {
      response.writeHead(200, { "content-type": "text/javascript" }).end(serviceWorker(port));
    },
    "/report": (_request, response) => {
      response.writeHead(200, { "content-disposition": "attachment" }).end("a,b");
    },
  });
}

test(
  "the attack works in a browser that nothing contains: TCP and UDP reach the canary",
  { skip: NO_CHROMIUM },
  () =>
    withCanary(async (canary) => {
      const site = await openAttack(canary.port);
      const browser = await launchChromium();
      try {
        const page = await browser.newPage();
        await page.goto(site.origin, { waitUntil: "commit" });
        const ways = ["/fetch", "/ws", "/worker", "/worker-ws", "/beacon", "/iframe", "/sandbox", "/service", "/img"];
        const untried = () => ways.filter((way) => !canary.paths().includes(way));
        await until(() => untried().length === 0 && canary.packets() > 0, () =>
          `${untried()}, ${canary.packets()} by UDP`);
      } finally {
        await browser.close();
        await site.close();
      }
    }),
);

const skip = await noContainedBrowser();

test(
  "a hostile page in the contained browser reaches no other server of this machine, by TCP or UDP",
  { skip },
  () =>
    withCanary(async (canary) => {
      const site = await openAttack(canary.port);
      // A snapshot waits for frames that never load as long as it may
      const browser = { allowed_domains: [`127.0.0.1:${site.port}`], timeout_secs: 6 };
      const config = { url_access: { allow_loopback: true }, browser };
      try {
        await withBrowserBench({ config }, async ({ call }) => {
          const opened = await call({ op: "navigate", url: site.origin });
          const waited = await call({ op: "wait", for: "all was tried" });
          assert.equal(waited.isError, false, waited.output);
          assert.match(opened.output + waited.output, /\[Cannot reach "127\.0\.0\.1.*allowed_domains to allow it\]/);
          assert.ok(site.requests.includes("GET /service.js"), "the service worker was tried");
          const ref = refOf((await call({ op: "snapshot" })).output, /button "Popup"/);
          const clicked = await call({ op: "click", ref });
          assert.match(clicked.output + (await call({ op: "text" })).output, /allowed_domains/);
          assert.deepEqual([canary.paths(), canary.connections(), canary.packets()], [[], 0, 0]);
        });
      } finally {
        await site.close();
      }
    }),
);

test(
  "a hostile page in a browser without bubblewrap reaches no other server of this machine, by TCP or UDP",
  { skip: noUncontainedBrowser() },
  () =>
    withCanary(async (canary) => {
      const site = await openAttack(canary.port);
      try {
        const said = await runUncontained(site.origin);
        assert.match(said, /all was tried/);
        assert.match(said, /Cannot reach .{0,3}127\.0\.0\.1.*allowed_domains to allow it/);
        assert.match(said, /"saved":"a,b"/);
        assert.ok(site.requests.includes("GET /service.js"), "the service worker was tried");
        assert.deepEqual([canary.paths(), canary.connections(), canary.packets()], [[], 0, 0]);
      } finally {
        await site.close();
      }
    }),
);

test(
  "a public page reaches neither this machine nor private, metadata or rebound addresses",
  { skip },
  () =>
    withCanary(async (canary) => {
      const PUBLIC = "93.184.215.14";
      let looked = 0;
      const answers: Readonly<Record<string, () => string>> = {
        "public.test": () => PUBLIC,
        // Public at the first look, this machine at each later one
        "rebound.test": () => looked++ === 0 ? PUBLIC : "127.0.0.1",
        "inner.test": () => "10.1.2.3",
        "metadata.test": () => "169.254.169.254",
      };
      const policy = createUrlPolicy({ lookup: (host) => Promise.resolve([answers[host]?.() ?? "127.0.0.1"]) });
      const targets: string[] = [];
      const tries = [
        "http://169.254.169.254/latest/meta-data/",
        "http://metadata.test/",
        "http://inner.test/",
        `http://127.0.0.1:${canary.port}/`,
        `http://rebound.test:${canary.port}/a`,
        `http://rebound.test:${canary.port}/b`,
        "http://192.168.0.1/",
        "http://[fd00::1]/",
      ];
      const page = `<title>Public</title><script>(async () => {
      for (const url of ${JSON.stringify(tries)}) await fetch(url, { mode: "no-cors" }).catch(() => {});
      document.body.append("all was tried"); })()</script>`;
      // Stands for the whole internet: whatever passes the policy comes here
      const tunnel = createServer((socket) => {
        socket.on("error", () => {});
        socket.once("data", (head) => {
          targets.push(/^CONNECT (\S+)/.exec(head.toString("latin1"))?.[1] ?? "");
          socket.write("HTTP/1.1 200 OK\r\n\r\n");
          const answer =
            `HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: ${page.length}\r\nconnection: close\r\n\r\n`;
          socket.once("data", () => socket.end(answer + page));
        });
      });
      await new Promise<void>((resolve) => tunnel.listen(0, "127.0.0.1", resolve));
      const proxy = `http://127.0.0.1:${(tunnel.address() as AddressInfo).port}`;
      try {
        await withBrowserBench({ policy, proxy: { http: proxy, https: proxy, no_proxy: [] } }, async ({ call }) => {
          assert.match((await call({ op: "navigate", url: "http://public.test/" })).output, /title="Public"/);
          const waited = await call({ op: "wait", for: "all was tried" });
          assert.equal(waited.isError, false, waited.output);
          assert.deepEqual([canary.paths(), canary.connections(), canary.packets()], [[], 0, 0]);
          const allowed = targets.filter((target) => !target.startsWith(`${PUBLIC}:`));
          assert.deepEqual(allowed, []);
          assert.ok(targets.includes(`${PUBLIC}:80`));
        });
      } finally {
        await new Promise<void>((resolve) => tunnel.close(() => resolve()));
      }
    }),
);
