import fc from "fast-check";
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { INDEXED_FIELDS, nameOf } from "../../lib/storage/indexed_fields.ts";
import type { ScanOptions, Store, Write } from "../../lib/storage/store.ts";
import { anyCharacter } from "../support/any_character.ts";

/** A kind of store, and how a test gets one. */
export interface Driver {
  readonly name: string;
  /** Reason why it cannot be tested here */
  readonly skip?: string | false;
  /** Runs `use` with a fresh store and removes what it left */
  readonly with: (use: (store: Store) => Promise<void>) => Promise<void>;
}

/** Keys of records that were found. */
export const keysOf = (found: readonly { readonly key: string }[]) => found.map(({ key }) => key);
const trueOnes = (results: readonly boolean[]) => results.filter((result) => result).length;

/** Adds the tests that the stores of every driver pass. */
export function testStore(driver: Driver): void {
  describe(`the ${driver.name} store`, { skip: driver.skip ?? false }, () => {
    const check = (name: string, use: (store: Store) => Promise<void>) => test(name, () => driver.with(use));

    check("get() gives what was put, and undefined for what was not", async (store) => {
      assert.equal(await store.get("a", "k"), undefined);
      assert.equal(await store.batch([{ op: "put", collection: "a", key: "k", body: { x: 1 } }]), true);
      assert.deepEqual(await store.get("a", "k"), { key: "k", version: 1, body: { x: 1 } });
      assert.equal(await store.get("b", "k"), undefined);
      await store.batch([{ op: "put", collection: "a", key: "k", body: 2 }]);
      assert.deepEqual(await store.get("a", "k"), { key: "k", version: 2, body: 2 });
    });

    check("JSON values come back unchanged", async (store) => {
      const values: unknown[] = ["true", "123", "", "null", true, 123, 0, -1.5e300, null, [], {}, "a\0b\ud800", [[
        1,
        "2",
      ]], {
        "": 1,
        constructor: "x",
        ["__proto__x"]: null,
      }];
      for (const [index, body] of values.entries()) {
        assert.equal(await store.insertOnce("json", `k${index}`, body), true);
      }
      for (const [index, body] of values.entries()) {
        assert.deepEqual((await store.get("json", `k${index}`))?.body, body);
      }
    });

    check(
      "NUL and lone surrogates survive in every place of a body",
      async (store) => {
        const text = "a\0b\ud800c\udfff\u2028\ufffe";
        const body = { [text]: [text, { [text]: text }], status: text };
        await store.batch([
          { op: "put", collection: "approvals", key: "k", body, text },
          { op: "append", stream: "s", expectedSeq: 0, records: [body, text] },
        ]);
        assert.deepEqual((await store.get("approvals", "k"))?.body, body);
        assert.deepEqual((await store.read("s", { afterSeq: 0, limit: 2 })).map((record) => record.body), [body, text]);
        assert.deepEqual((await store.takeOnce("approvals", "k"))?.body, body);
      },
    );

    check("an indexed field may have a long value", async (store) => {
      const long = "\u{1F600}".repeat(3_000);
      await store.insertOnce("approvals", "long", { status: long });
      const longer = { field: "status", value: `${long}x` };
      assert.deepEqual(await store.scan("approvals", { order: "created", limit: 1, where: longer }), []);
      const same = { field: "status", value: long };
      assert.deepEqual(keysOf(await store.scan("approvals", { order: "created", limit: 1, where: same })), ["long"]);
    });

    check("a body of 10 MB comes back unchanged, from a record and from a stream", async (store) => {
      const body = { text: "a'\\\"\n\u{1F600}$1 ".repeat(800_000), end: true };
      assert.ok(JSON.stringify(body).length > 10_000_000);
      assert.equal(await store.putIfVersion("c", "k", 0, body), true);
      assert.equal(await store.append("s", 0, [body, 1]), true);
      assert.deepEqual((await store.get("c", "k"))?.body, body);
      const [first, second] = await store.read("s", { afterSeq: 0, limit: 2 });
      assert.deepEqual([first?.body, second?.body], [body, 1]);
      assert.deepEqual((await store.takeOnce("c", "k"))?.body, body);
    });

    check("any JSON value and any valid key survive", async (store) => {
      let count = 0;
      const key = fc.string({ unit: anyCharacter, minLength: 1, maxLength: 20 }).filter((text) => !text.includes("\0"));
      await fc.assert(
        fc.asyncProperty(key, fc.jsonValue(), async (name, body) => {
          const collection = `c${count++}`;
          assert.equal(await store.insertOnce(collection, name, body), true);
          const [found] = await store.scan(collection, { limit: 10 });
          assert.equal(found?.key, name);
          assert.equal(JSON.stringify(found?.body), JSON.stringify(body));
        }),
        { numRuns: 100 },
      );
    });

    check("a body is a copy: changing it later changes nothing", async (store) => {
      const body = { list: [1] };
      const write = store.insertOnce("a", "k", body);
      body.list.push(2);
      await write;
      const found = (await store.get("a", "k"))?.body as { list: number[] };
      assert.deepEqual(found, { list: [1] });
      found.list.push(3);
      assert.deepEqual((await store.get("a", "k"))?.body, { list: [1] });
    });

    check("keys with : ? / % and beyond the basic plane stay apart", async (store) => {
      const keys = [
        "a:b",
        "a/b",
        "a?b",
        "a",
        "a?",
        "a%3Ab",
        "a b",
        "A",
        "é",
        "e\u0301",
        "\u{1F600}",
        "\uFFFD",
        "../x",
        "'; --",
      ];
      for (const key of keys) assert.equal(await store.insertOnce("keys", key, key), true);
      for (const key of keys) assert.equal((await store.get("keys", key))?.body, key);
      assert.equal(await store.count("keys"), keys.length);
    });

    check("names that could become another on disk are refused", async (store) => {
      for (const key of ["", "a\0b", "\ud800", "x".repeat(2049), "é".repeat(1025)]) {
        await assert.rejects(store.get("c", key), TypeError);
        await assert.rejects(store.insertOnce("c", key, 1), TypeError);
        await assert.rejects(store.takeOnce("c", key), TypeError);
        await assert.rejects(store.scan(key, { limit: 1 }), TypeError);
        await assert.rejects(store.append(key, 0, [1]), TypeError);
      }
      assert.equal(await store.insertOnce("c", "é".repeat(1024), 1), true);
    });

    check("a body JSON cannot carry is refused, and only it", async (store) => {
      const circular: unknown[] = [];
      circular.push(circular);
      const results = await Promise.allSettled([
        store.insertOnce("c", "1", undefined),
        store.insertOnce("c", "2", circular),
        store.insertOnce("c", "3", 10n),
        store.insertOnce("c", "4", "fine"),
      ]);
      assert.deepEqual(results.map(({ status }) => status), ["rejected", "rejected", "rejected", "fulfilled"]);
      assert.deepEqual(keysOf(await store.scan("c", { limit: 10 })), ["4"]);
    });

    check("of 100 parallel takeOnce() calls exactly one gets the record", async (store) => {
      await store.insertOnce("codes", "c", "x");
      const taken = await Promise.all(Array.from({ length: 100 }, () => store.takeOnce("codes", "c")));
      assert.deepEqual(taken.filter((record) => record !== undefined), [{ key: "c", version: 1, body: "x" }]);
      assert.equal(await store.get("codes", "c"), undefined);
    });

    check("of 100 parallel insertOnce() calls exactly one wins", async (store) => {
      const results = await Promise.all(Array.from({ length: 100 }, (_, index) => store.insertOnce("c", "k", index)));
      assert.equal(trueOnes(results), 1);
      assert.equal((await store.get("c", "k"))?.body, results.indexOf(true));
    });

    check("of 100 parallel putIfVersion() calls on one version exactly one wins", async (store) => {
      assert.equal(await store.putIfVersion("c", "k", 1, "no such record"), false);
      assert.equal(
        trueOnes(await Promise.all(Array.from({ length: 100 }, () => store.putIfVersion("c", "k", 0, "new")))),
        1,
      );
      const results = await Promise.all(
        Array.from({ length: 100 }, (_, index) => store.putIfVersion("c", "k", 1, index)),
      );
      assert.equal(trueOnes(results), 1);
      assert.deepEqual(await store.get("c", "k"), { key: "k", version: 2, body: results.indexOf(true) });
    });

    check("of 100 parallel appends at one position exactly one wins, and seq has no gap", async (store) => {
      assert.equal(await store.append("s", 0, ["a", "b"]), true);
      const results = await Promise.all(Array.from({ length: 100 }, (_, index) => store.append("s", 2, [index])));
      assert.equal(trueOnes(results), 1);
      assert.equal(await store.append("s", 1, ["late"]), false);
      assert.equal(await store.append("s", 9, ["early"]), false);
      const records = await store.read("s", { afterSeq: 0, limit: 10 });
      assert.deepEqual(records, [
        { seq: 1, body: "a" },
        { seq: 2, body: "b" },
        { seq: 3, body: results.indexOf(true) },
      ]);
      assert.deepEqual(await store.read("s", { afterSeq: 2, limit: 1 }), records.slice(2));
      assert.deepEqual(await store.read("s", { afterSeq: 3, limit: 1 }), []);
      assert.deepEqual(await store.read("none", { afterSeq: 0, limit: 1 }), []);
    });

    check("an append of nothing only checks the position", async (store) => {
      assert.equal(await store.append("s", 0, []), true);
      assert.equal(await store.append("s", 1, []), false);
      assert.equal(await store.append("s", 0, ["a"]), true);
    });

    check("a dropped stream starts again from 1", async (store) => {
      await store.append("s", 0, ["a", "b"]);
      await store.append("other", 0, ["kept"]);
      assert.equal(
        await store.batch([{ op: "drop", stream: "s" }, { op: "append", stream: "s", expectedSeq: 0, records: ["c"] }]),
        true,
      );
      assert.deepEqual(await store.read("s", { afterSeq: 0, limit: 10 }), [{ seq: 1, body: "c" }]);
      assert.equal((await store.read("other", { afterSeq: 0, limit: 10 })).length, 1);
    });

    check("a batch is all or nothing, whichever precondition fails", async (store) => {
      await store.batch([
        { op: "put", collection: "c", key: "there", body: "old", text: "needle" },
        { op: "append", stream: "s", expectedSeq: 0, records: ["first"] },
      ]);
      const effects: Write[] = [
        { op: "put", collection: "c", key: "there", body: "new" },
        { op: "put", collection: "c", key: "fresh", body: 1, text: "needle" },
        { op: "delete", collection: "c", key: "there" },
        { op: "append", stream: "s", expectedSeq: 1, records: ["second"] },
        { op: "drop", stream: "s" },
        { op: "append", stream: "t", expectedSeq: 0, records: ["t"] },
      ];
      const failures: Write[] = [
        { op: "insert", collection: "d", key: "k", body: 1 },
        { op: "putIf", collection: "d", key: "k", version: 7, body: 1 },
        { op: "putIf", collection: "d", key: "absent", version: 0, body: 1 },
        { op: "append", stream: "u", expectedSeq: 3, records: [1] },
      ];
      await store.insertOnce("d", "k", "mine");
      for (const failure of failures) {
        assert.equal(await store.batch([...effects, failure]), false);
        assert.deepEqual(await store.get("c", "there"), { key: "there", version: 1, body: "old" });
        assert.equal(await store.get("c", "fresh"), undefined);
        assert.deepEqual(await store.read("s", { afterSeq: 0, limit: 10 }), [{ seq: 1, body: "first" }]);
        assert.deepEqual(await store.read("t", { afterSeq: 0, limit: 10 }), []);
        assert.deepEqual(keysOf(await store.search("c", { query: "needle", limit: 10 })), ["there"]);
      }
      assert.equal(await store.batch([...effects, { op: "insert", collection: "d", key: "k2", body: 1 }]), true);
      assert.deepEqual(keysOf(await store.scan("c", { limit: 10 })), ["fresh"]);
      assert.equal(await store.batch([]), true);
    });

    check("a failed batch among many leaves its neighbours alone", async (store) => {
      const results = await Promise.all(Array.from({ length: 150 }, (_, index) =>
        store.batch([
          { op: "put", collection: "c", key: `k${index}`, body: index },
          ...(index % 3 === 0 ? [{ op: "putIf", collection: "none", key: "x", version: 1, body: 0 } as const] : []),
        ])));
      assert.deepEqual(results, Array.from({ length: 150 }, (_, index) => index % 3 !== 0));
      assert.equal(await store.count("c"), 100);
    });

    check("writes of one turn apply in the order they were called", async (store) => {
      const [inserted, replaced, taken, again] = await Promise.all([
        store.insertOnce("c", "k", 1),
        store.putIfVersion("c", "k", 1, 2),
        store.takeOnce("c", "k"),
        store.insertOnce("c", "k", 3),
      ]);
      assert.deepEqual([inserted, replaced, taken, again], [true, true, { key: "k", version: 2, body: 2 }, true]);
    });

    check("scan() by key goes by bytes, with prefix, after, reverse and paging", async (store) => {
      const keys = ["a", "b", "b/1", "b/10", "b/2", "b0", "b\u{10FFFF}", "c", "\uFFFD", "\u{1F600}"];
      for (const key of [...keys].reverse()) await store.insertOnce("c", key, 0);
      await store.insertOnce("d", "b/1", 0);
      assert.deepEqual(keysOf(await store.scan("c", { limit: 100 })), keys);
      assert.deepEqual(keysOf(await store.scan("c", { limit: 100, reverse: true })), [...keys].reverse());
      assert.deepEqual(keysOf(await store.scan("c", { prefix: "b/", limit: 100 })), ["b/1", "b/10", "b/2"]);
      assert.deepEqual(keysOf(await store.scan("c", { prefix: "b\u{10FFFF}", limit: 9 })), ["b\u{10FFFF}"]);
      assert.deepEqual(keysOf(await store.scan("c", { prefix: "b", after: "b/10", limit: 2 })), ["b/2", "b0"]);
      assert.deepEqual(keysOf(await store.scan("c", { prefix: "b", after: "a", limit: 1 })), ["b"]);
      assert.deepEqual(keysOf(await store.scan("c", { prefix: "b", after: "c", limit: 9 })), []);
      assert.deepEqual(keysOf(await store.scan("c", { after: "b/15", limit: 1 })), ["b/2"]);
      assert.deepEqual(keysOf(await store.scan("c", { after: "b/15", reverse: true, limit: 1 })), ["b/10"]);
      assert.deepEqual(keysOf(await store.scan("c", { prefix: "b/", after: "c", reverse: true, limit: 2 })), [
        "b/2",
        "b/10",
      ]);
      const paged: string[] = [];
      let after: string | undefined;
      for (;;) {
        const page = await store.scan("c", { limit: 3, ...(after === undefined ? {} : { after }) });
        paged.push(...keysOf(page));
        after = page.at(-1)?.key;
        if (after === undefined) break;
      }
      assert.deepEqual(paged, keys);
    });

    check("scan() by an indexed field gives the records of one value, in the order of its index", async (store) => {
      for (const field of INDEXED_FIELDS) {
        const { collection, order } = field;
        const name = nameOf(field);
        const bodyOf = (value: unknown) => field.path.reduceRight<unknown>((inner, key) => ({ [key]: inner }), value);
        const put = (key: string, value: unknown) =>
          store.batch([{ op: "put", collection, key: `${name}/${key}`, body: bodyOf(value) }]);
        // Keys count down, so that the two orders differ
        for (let i = 9; i >= 1; i--) await put(`${i}`, i % 3 === 0 ? "third" : "other");
        for (const [key, value] of [["a", null], ["b", 3], ["c", ["third"]], ["d", { third: 1 }]] as const) {
          await put(key, value);
        }
        await store.batch([{ op: "put", collection, key: `${name}/e`, body: "third" }]);
        const find = async (value: string, options: Partial<ScanOptions> = {}) =>
          keysOf(await store.scan(collection, { order, limit: 10, where: { field: name, value }, ...options }))
            .map((key) => key.slice(name.length + 1));
        const all = order === "key" ? ["3", "6", "9"] : ["9", "6", "3"];
        assert.deepEqual(await find("third"), all, name);
        assert.equal(await store.count(collection, { field: name, value: "third" }), 3);
        if (field.findsAbsent) assert.deepEqual(await find(""), ["a", "e"]);
        else assert.deepEqual(await find(""), []);
        assert.deepEqual(await find("third", { reverse: true }), all.toReversed());
        assert.deepEqual(await find("third", { limit: 2 }), all.slice(0, 2));
        assert.deepEqual(await find("third", { after: `${name}/${all[0]}` }), all.slice(1));
        assert.deepEqual(await find("third", { after: `${name}/${all[2]}`, reverse: true }), ["6", all[0]]);
        await put("6", "other");
        assert.deepEqual(
          await find("third", { after: `${name}/6` }),
          all.slice(2),
          "a place that has another value now",
        );
        await store.batch([{ op: "delete", collection, key: `${name}/3` }]);
        assert.deepEqual(await find("third"), ["9"]);
        assert.deepEqual(await find("nothing"), []);
        assert.deepEqual(await find("3"), []);
      }
    });

    check(
      "scan() refuses a field without an index, another order than that of the index, and a prefix",
      async (store) => {
        const where = { field: "run.status", value: "failed" };
        await assert.rejects(store.scan("memory", { order: "created", limit: 1, where }), TypeError);
        await assert.rejects(store.scan("runs", { limit: 1, where }), TypeError);
        await assert.rejects(store.scan("runs", { order: "created", limit: 1, where, prefix: "run_" }), TypeError);
        await assert.rejects(
          store.scan("runs", { order: "created", limit: 1, where: { ...where, field: "run.id" } }),
          TypeError,
        );
      },
    );

    check("scan() by creation keeps the order of first insertion", async (store) => {
      for (const key of ["z/1", "a", "z/2", "m", "z/3"]) await store.insertOnce("c", key, 0);
      await store.batch([{ op: "put", collection: "c", key: "z/1", body: "again" }]);
      await store.takeOnce("c", "a");
      await store.insertOnce("c", "a", "back");
      assert.deepEqual(keysOf(await store.scan("c", { order: "created", limit: 9 })), ["z/1", "z/2", "m", "z/3", "a"]);
      assert.deepEqual(keysOf(await store.scan("c", { order: "created", prefix: "z", after: "z/1", limit: 9 })), [
        "z/2",
        "z/3",
      ]);
      assert.deepEqual(keysOf(await store.scan("c", { order: "created", reverse: true, limit: 2 })), ["a", "z/3"]);
      assert.deepEqual(keysOf(await store.scan("c", { order: "created", reverse: true, after: "m", limit: 9 })), [
        "z/2",
        "z/1",
      ]);
      assert.deepEqual(keysOf(await store.scan("c", { order: "created", after: "gone", limit: 9 })), []);
    });

    check("limits and positions out of range are refused", async (store) => {
      for (const limit of [0, -1, 1001, 1.5, NaN]) {
        await assert.rejects(store.scan("c", { limit }), RangeError);
        await assert.rejects(store.search("c", { query: "x", limit }), RangeError);
        await assert.rejects(store.read("s", { afterSeq: 0, limit }), RangeError);
      }
      for (const seq of [-1, 0.5, NaN]) {
        await assert.rejects(store.append("s", seq, [1]), RangeError);
        await assert.rejects(store.read("s", { afterSeq: seq, limit: 1 }), RangeError);
        await assert.rejects(store.putIfVersion("c", "k", seq, 1), RangeError);
      }
    });

    check("count() counts a collection or a prefix of it", async (store) => {
      for (const key of ["a/1", "a/2", "b/1"]) await store.insertOnce("c", key, 0);
      assert.deepEqual([await store.count("c"), await store.count("c", "a/"), await store.count("none")], [3, 2, 0]);
    });

    check("search() ranks by how well and how rarely the words match", async (store) => {
      const texts: Record<string, string> = {
        one: "The deploy script lives in scripts/deploy.ts and needs Node",
        two: "Deployment of the staging server happens on Friday; the server is slow",
        three: "Lunch is at noon",
        four: "The Füße of the model are large",
        five: "nothing of interest here, and yet it is long enough to be a text about the weather",
      };
      for (const [key, text] of Object.entries(texts)) {
        await store.batch([{ op: "put", collection: "m", key: `x/${key}`, body: key, text }]);
      }
      await store.batch([{ op: "put", collection: "other", key: "x/one", body: 0, text: "deploy staging server" }]);
      await store.insertOnce("m", "x/silent", "deploy");
      const found = async (query: string, limit = 10) => keysOf(await store.search("m", { query, limit }));
      assert.deepEqual(await found("staging server"), ["x/two"]);
      assert.deepEqual((await found("deploy")).sort(), ["x/one", "x/two"]);
      assert.deepEqual(await found("deploy staging"), ["x/two", "x/one"]);
      assert.deepEqual(await found("deploy staging", 1), ["x/two"]);
      assert.deepEqual(await found("LUNCH"), ["x/three"]);
      assert.deepEqual(await found("fusse fuße"), ["x/four"]);
      assert.deepEqual(await found("absent"), []);
      assert.deepEqual(keysOf(await store.search("m", { query: "lunch", prefix: "y/", limit: 10 })), []);
      assert.deepEqual(keysOf(await store.search("m", { query: "lunch", prefix: "x/", limit: 10 })), ["x/three"]);
    });

    check("search() forgets replaced, deleted and taken texts", async (store) => {
      const put = (key: string, text?: string) =>
        store.batch([{ op: "put", collection: "m", key, body: 0, ...(text === undefined ? {} : { text }) }]);
      const found = async (query: string) => keysOf(await store.search("m", { query, limit: 10 }));
      await put("a", "apple");
      await put("b", "apple");
      await put("c", "apple");
      await put("d", "apple");
      await put("a", "banana");
      await put("b");
      await store.batch([{ op: "delete", collection: "m", key: "c" }]);
      await store.takeOnce("m", "d");
      assert.deepEqual([await found("apple"), await found("banana")], [[], ["a"]]);
      await put("b", "apple");
      await store.putIfVersion("m", "a", 2, "no text");
      assert.deepEqual([await found("apple"), await found("banana")], [["b"], []]);
    });

    check(
      "search() finds words of scripts without spaces, forms of words, parts of words and folded letters",
      async (store) => {
        const texts = {
          zh: "数据库每天凌晨两点自动备份到另一台服务器",
          ja: "会議室の鍵は受付で管理しています",
          ko: "서버의 비밀번호를 석 달마다 바꿔야 합니다",
          th: "สำรองข้อมูลทุกคืน",
          de: "Die Donaudampfschifffahrtsgesellschaft hat neue Häuser",
          fr: "Les sauvegardes sont chiffrées",
          ru: "Пароли лежат в сейфе",
          emoji: "the 🚀 starts at noon",
        };
        await store.batch(
          Object.entries(texts).map(([key, text]): Write => ({ op: "insert", collection: "m", key, body: 0, text })),
        );
        const queries = {
          zh: ["备份", "服务器", "数", "器", "备份时间是几点"],
          ja: ["鍵の管理", "会議", "鍵"],
          ko: ["비밀번호", "서버에서", "달"],
          th: ["ข้อมูล"],
          de: ["schifffahrt", "Haus", "hauser", "DAMPFSCHIFF"],
          fr: ["sauvegarde chiffrement", "chiffrees"],
          ru: ["пароль", "сейф"],
          emoji: ["🚀"],
        };
        for (const [key, asked] of Object.entries(queries)) {
          for (const query of asked) {
            assert.equal((await store.search("m", { query, limit: 10 }))[0]?.key, key, query);
          }
        }
        assert.deepEqual(await store.search("m", { query: "中", limit: 10 }), []);
      },
    );

    check("search() puts whole words before forms, and forms before parts of words", async (store) => {
      const texts = { part: "gateway open now", form: "gates open now", word: "gate open now", none: "door open now" };
      await store.batch(
        Object.entries(texts).map(([key, text]): Write => ({ op: "insert", collection: "m", key, body: 0, text })),
      );
      for (let index = 0; index < 5; index++) {
        await store.batch([{ op: "insert", collection: "m", key: `other${index}`, body: 0, text: "nothing to see" }]);
      }
      assert.deepEqual(keysOf(await store.search("m", { query: "gate", limit: 10 })), ["word", "form", "part"]);
    });

    check("search() puts a text that says the word more often first", async (store) => {
      const put = (key: string, text: string) => store.batch([{ op: "put", collection: "m", key, body: 0, text }]);
      await put("once", "plum pear fig");
      await put("twice", "plum plum fig");
      await put("never", "pear fig pear");
      assert.deepEqual(keysOf(await store.search("m", { query: "plum", limit: 10 })), ["twice", "once"]);
    });

    check("a batch that did not hold leaves the order of what it would have deleted", async (store) => {
      for (const key of ["a", "b", "c"]) {
        await store.batch([{ op: "insert", collection: "m", key, body: 0, text: "plum" }]);
      }
      const isApplied = await store.batch([
        { op: "delete", collection: "m", key: "a" },
        { op: "insert", collection: "m", key: "b", body: 1, text: "plum" },
      ]);
      assert.equal(isApplied, false);
      assert.deepEqual(keysOf(await store.search("m", { query: "plum", limit: 10 })), ["a", "b", "c"]);
      assert.deepEqual(keysOf(await store.scan("m", { order: "created", limit: 10 })), ["a", "b", "c"]);
    });

    check("search() takes any query as plain words", async (store) => {
      await store.batch([{ op: "put", collection: "m", key: "k", body: 0, text: "alpha OR beta NEAR gamma\0delta" }]);
      const hostile = [
        '"',
        '""',
        "'",
        "*",
        "^alpha",
        "alpha*",
        "alpha AND",
        "NOT alpha",
        "NEAR(alpha beta)",
        "text:alpha",
        "-alpha",
        "(alpha",
      ];
      hostile.push(
        "{alpha beta}",
        "alpha + beta",
        "al\0pha",
        "\ud800alpha",
        "\u0301",
        "alpha".repeat(5000),
        "a ".repeat(50_000),
        "; DROP TABLE records",
        "数据库备份 AND".repeat(1_000),
        "\u{1f680}".repeat(5_000),
        "\u0e01\u0e33".repeat(5_000),
        "words : alpha",
        "\u00b7alp",
      );
      for (const query of hostile) await store.search("m", { query, limit: 10 });
      assert.deepEqual(await store.search("m", { query: '"*() ^', limit: 10 }), []);
      assert.deepEqual(keysOf(await store.search("m", { query: 'NOT "alpha', limit: 10 })), ["k"]);
      assert.deepEqual(keysOf(await store.search("m", { query: "delta", limit: 10 })), ["k"]);
      await fc.assert(
        fc.asyncProperty(fc.string({ unit: anyCharacter, maxLength: 40 }), async (query) => {
          await store.search("m", { query, limit: 10 });
        }),
        { numRuns: 100 },
      );
    });

    check(
      "search() among thousands: rare words by rank, then common ones together, then any, newest first",
      async (store) => {
        const texts = Array.from({ length: 4_500 }, (_, index) => {
          const gate = index % 10 === 0 ? "" : "gate ";
          return `the ${gate}${index === 3 || index === 7 ? "needle" : "filler filler"}${index === 7 ? " needle" : ""}`;
        });
        const writes = texts.map((text, index): Write => (
          { op: "insert", collection: "m", key: `big/${index}`, body: 0, text }
        ));
        await store.batch([...writes, { op: "put", collection: "m", key: "small/x", body: 0, text: "the gates" }]);
        const found = async (query: string, limit: number, prefix = "big/") =>
          keysOf(await store.search("m", { query, prefix, limit }));
        assert.deepEqual(await found("the needle", 4), ["big/7", "big/3", "big/4499", "big/4498"]);
        assert.deepEqual(await found("the gate", 10), [
          ...[4499, 4498, 4497, 4496, 4495, 4494, 4493, 4492, 4491, 4489].map((index) => `big/${index}`),
        ]);
        assert.deepEqual(await found("the", 2), ["big/4499", "big/4498"]);
        assert.equal((await found("the", 1000)).length, 1000);
        assert.deepEqual(await found("the gate", 5, "small/"), ["small/x"]);
        assert.deepEqual(await found("the gate needle", 5, "none/"), []);
        assert.deepEqual(await found("needle", 5, "big/7"), ["big/7"]);
        assert.deepEqual(await found("the", 2, "big/44"), ["big/4499", "big/4498"]);
      },
    );

    check("nearest() gives the records with the nearest vectors of one model, within a prefix", async (store) => {
      const put = (key: string): Write => ({ op: "insert", collection: "m", key, body: key, text: key });
      const vector = (key: string, model: string, ...values: number[]): Write => (
        { op: "vector", collection: "m", key, version: 1, vector: { model, values: Float32Array.from(values) } }
      );
      await store.batch(["x/east", "x/north", "y/east", "x/other", "x/long", "x/none"].map(put));
      await store.batch([
        vector("x/east", "a", 2, 0.1),
        vector("x/north", "a", 0, 7),
        vector("y/east", "a", 1, 0),
        vector("x/other", "b", 1, 0),
        vector("x/long", "a", 1, 0, 0),
      ]);
      const nearest = async (values: readonly number[], prefix = "", limit = 10) =>
        keysOf(await store.nearest("m", { vector: { model: "a", values: Float32Array.from(values) }, prefix, limit }));
      assert.deepEqual(await nearest([9, 0]), ["y/east", "x/east", "x/north"]);
      assert.deepEqual(await nearest([9, 0], "x/"), ["x/east", "x/north"]);
      assert.deepEqual(await nearest([0.1, 1], "", 1), ["x/north"]);
      assert.deepEqual(await nearest([9, 0], "z/"), []);
      const [first] = await store.nearest("m", {
        vector: { model: "b", values: Float32Array.of(1, 1) },
        limit: 1,
      });
      assert.deepEqual(first, { key: "x/other", version: 1, body: "x/other" });
      await assert.rejects(nearest([0, 0]), RangeError);
      await assert.rejects(nearest([1, 0], "", 0), RangeError);
    });

    check("nearest() looks at every vector of many", async (store) => {
      const keys = Array.from({ length: 1_203 }, (_, index) => `k${index}`);
      await store.batch(keys.map((key): Write => ({ op: "insert", collection: "m", key, body: 0, text: "x" })));
      await store.batch(keys.map((key, index): Write => {
        const vector = { model: "a", values: Float32Array.of(Math.cos(index / 1_000), Math.sin(index / 1_000)) };
        return { op: "vector", collection: "m", key, version: 1, vector };
      }));
      for (const index of [0, 499, 500, 1_000, 1_202]) {
        const values = Float32Array.of(Math.cos(index / 1_000), Math.sin(index / 1_000));
        assert.deepEqual(keysOf(await store.nearest("m", { vector: { model: "a", values }, limit: 1 })), [`k${index}`]);
      }
    });

    check("a check writes nothing, and holds the batch to one version of another record", async (store) => {
      const check = (key: string, version: number): Write => ({ op: "check", collection: "c", key, version });
      const put: Write = { op: "put", collection: "d", key: "k", body: 1 };
      await store.insertOnce("c", "held", 1);
      await store.putIfVersion("c", "held", 1, 2);
      for (const version of [0, 1, 3]) {
        assert.equal(await store.batch([put, check("held", version)]), false, `version ${version}`);
        assert.equal(await store.batch([check("held", version), put]), false, `version ${version}, first`);
      }
      assert.equal(await store.batch([check("absent", 1), put]), false);
      assert.equal(await store.get("d", "k"), undefined, "nothing of a batch whose check failed is written");
      assert.equal(await store.batch([check("held", 2), check("absent", 0), put]), true);
      assert.equal((await store.get("c", "held"))?.version, 2, "a check leaves the version as it is");
      // A check sees what its own batch wrote before it
      assert.equal(await store.batch([{ op: "delete", collection: "c", key: "held" }, check("held", 0)]), true);
      await assert.rejects(store.batch([check("held", -1)]), RangeError);
    });

    check("a check and a change of its record never both win", async (store) => {
      for (let version = 1; version <= 20; version++) {
        if (version === 1) await store.insertOnce("c", "fence", 0);
        const [isChanged, isWritten] = await Promise.all([
          store.putIfVersion("c", "fence", version, version),
          store.batch([
            { op: "check", collection: "c", key: "fence", version },
            { op: "append", stream: "s", expectedSeq: version - 1, records: [version] },
          ]),
        ]);
        assert.equal(isChanged, true);
        // Either order is right, but after the change nothing is written with the old version
        const late = await store.batch([
          { op: "check", collection: "c", key: "fence", version },
          { op: "put", collection: "d", key: "late", body: 0 },
        ]);
        assert.equal(late, false);
        if (!isWritten) await store.append("s", version - 1, [version]);
      }
      assert.equal(await store.get("d", "late"), undefined);
    });

    check("a vector is kept for one version of a record with a text, and goes with it", async (store) => {
      const put = (key: string, text?: string) =>
        store.batch([{ op: "put", collection: "m", key, body: 0, ...(text === undefined ? {} : { text }) }]);
      const values = Float32Array.of(1, 2);
      const keep = (key: string, version: number) =>
        store.batch([{ op: "vector", collection: "m", key, version, vector: { model: "a", values } }]);
      const found = async () => keysOf(await store.nearest("m", { vector: { model: "a", values }, limit: 10 }));
      await put("k", "text");
      await put("silent");
      assert.deepEqual([await keep("k", 2), await keep("absent", 1), await keep("silent", 1)], [false, false, false]);
      assert.deepEqual([await keep("k", 1), await found()], [true, ["k"]]);
      assert.equal((await store.get("m", "k"))?.version, 1);
      await put("k", "another text");
      assert.deepEqual([await found(), await keep("k", 1), await keep("k", 2)], [[], false, true]);
      await store.takeOnce("m", "k");
      await put("k", "text");
      assert.deepEqual(await found(), []);
      assert.equal(await keep("k", 1), true);
      await store.batch([{ op: "delete", collection: "m", key: "k" }]);
      await put("k", "text");
      assert.deepEqual(await found(), []);
      await store.batch([
        { op: "vector", collection: "m", key: "k", version: 1, vector: { model: "a", values } },
        { op: "insert", collection: "m", key: "k", body: 0 },
      ]);
      assert.deepEqual(await found(), []);
    });

    check("vectorless() pages through the records, newest first, and names those without a vector", async (store) => {
      const put = (key: string, text?: string): Write => (
        { op: "insert", collection: "m", key, body: 0, ...(text === undefined ? {} : { text }) }
      );
      await store.batch([put("a", "x"), put("b", "x"), put("silent"), put("c", "x"), put("d", "x")]);
      const vector = { model: "a", values: Float32Array.of(1, 2) };
      await store.batch([{ op: "vector", collection: "m", key: "c", version: 1, vector }]);
      const look = async (more: { model?: string; dimensions?: number; after?: number; limit?: number } = {}) => {
        const { records, last } = await store.vectorless("m", { model: "a", limit: 10, ...more });
        return { keys: keysOf(records), last };
      };
      const all = await look();
      assert.deepEqual(all.keys, ["d", "b", "a"]);
      assert.deepEqual(await look({ after: all.last ?? 0 }), { keys: [], last: undefined });
      const first = await look({ limit: 2 });
      assert.deepEqual(first.keys, ["d"]);
      // The page goes on also when the record that it ended with is gone
      await store.takeOnce("m", "c");
      assert.deepEqual((await look({ limit: 2, after: first.last ?? 0 })).keys, ["b"]);
      await store.batch([put("c", "x"), { op: "vector", collection: "m", key: "c", version: 1, vector }]);
      assert.deepEqual((await look({ model: "b" })).keys, ["c", "d", "b", "a"]);
      assert.deepEqual((await look({ dimensions: 2 })).keys, ["d", "b", "a"]);
      assert.deepEqual((await look({ dimensions: 3 })).keys, ["c", "d", "b", "a"]);
      await assert.rejects(look({ limit: 0 }), RangeError);
    });

    check("scan() by creation pages through one of many prefixes", async (store) => {
      for (let index = 0; index < 9; index++) await store.insertOnce("c", `${"abc"[index % 3]}/${index}`, 0);
      const scan = async (more: object) => keysOf(await store.scan("c", { order: "created", limit: 2, ...more }));
      assert.deepEqual(await scan({ prefix: "b/" }), ["b/1", "b/4"]);
      assert.deepEqual(await scan({ prefix: "b/", after: "b/4" }), ["b/7"]);
      assert.deepEqual(await scan({ prefix: "b/", reverse: true }), ["b/7", "b/4"]);
      assert.deepEqual(await scan({ prefix: "b/", reverse: true, after: "a/3" }), ["b/1"]);
      assert.deepEqual(await scan({ prefix: "b/4" }), ["b/4"]);
      assert.deepEqual(await scan({ prefix: "d/" }), []);
    });

    check("each unreadable record is told of once, and is forgotten with the write that ends it", async (store) => {
      const { unreadable } = store;
      const told: string[] = [];
      const find = (collection: string, key: string) => unreadable.add({ collection, key, reason: "it is not JSON" });
      const places = () => unreadable.list().map(({ collection, key }) => `${collection} ${key}`);
      find("c", "before");
      unreadable.watch(({ collection, key }) => told.push(`${collection} ${key}`));
      for (const key of ["put", "deleted", "stays"]) find("c", key);
      find("c", "stays");
      for (const key of ["1", "2"]) find("dropped", key);
      find("appended", "1");
      const all = ["c before", "c put", "c deleted", "c stays", "dropped 1", "dropped 2", "appended 1"];
      assert.deepEqual([told, places()], [all, all]);
      await store.batch([
        { op: "put", collection: "c", key: "put", body: 1 },
        { op: "delete", collection: "c", key: "deleted" },
        { op: "append", stream: "appended", expectedSeq: 0, records: [1] },
        { op: "drop", stream: "dropped" },
      ]);
      assert.deepEqual(places(), ["c before", "c stays", "appended 1"]);
      assert.equal(await store.batch([{ op: "putIf", collection: "c", key: "stays", version: 9, body: 1 }]), false);
      assert.equal(unreadable.count(), 3);
    });

    check("close() lets pending writes finish, and then every call is a clear error", async (store) => {
      const pending = Promise.all([store.insertOnce("c", "k", 1), store.append("s", 0, [1])]);
      await store.close();
      assert.deepEqual(await pending, [true, true]);
      const closed = /closed/;
      await assert.rejects(store.get("c", "k"), closed);
      await assert.rejects(store.scan("c", { limit: 1 }), closed);
      await assert.rejects(store.count("c"), closed);
      await assert.rejects(store.search("c", { query: "x", limit: 1 }), closed);
      const vector = { model: "a", values: Float32Array.of(1) };
      await assert.rejects(store.nearest("c", { vector, limit: 1 }), closed);
      await assert.rejects(store.vectorless("c", { model: "a", limit: 1 }), closed);
      await assert.rejects(store.takeOnce("c", "k"), closed);
      await assert.rejects(store.insertOnce("c", "k", 1), closed);
      await assert.rejects(store.putIfVersion("c", "k", 0, 1), closed);
      await assert.rejects(store.append("s", 0, [1]), closed);
      await assert.rejects(store.read("s", { afterSeq: 0, limit: 1 }), closed);
      await assert.rejects(store.batch([]), closed);
      assert.equal(store.healthy(), false);
      await store.close();
    });
  });
}
