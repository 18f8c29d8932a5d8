import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { Memory } from "../../lib/memory/memory.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { openSqliteStore } from "../../lib/storage/open_sqlite_store.ts";
import type { Store } from "../../lib/storage/store.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { NO_POSTGRES } from "../support/postgres_server.ts";
import { withPostgresStore } from "../support/postgres_stores.ts";
import { createSeededRandom } from "../support/seeded_random.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

/** A question about a memory in other words than the memory's own. */
interface Paraphrase {
  readonly key: string;
  readonly language: string;
  readonly entry: string;
  readonly query: string;
}

// The file is ours and written in this form
const PARAPHRASES = JSON.parse(
  readFileSync(new URL("./paraphrases.json", import.meta.url), "utf8"),
) as readonly Paraphrase[];
const RESULTS = 10;

/** Subjects, actions and places of each language. All of them together make the memories that no query is about. */
const DISTRACTORS: Readonly<Record<string, readonly [subjects: string, actions: string, places: string]>> = {
  en: [
    "The customer|Our server|The new printer|A reviewer|The night shift|The database|An invoice|The project team",
    "was moved to|needs a password for|is cleaned before|gets an update from|asks the office about|is stored in",
    "the second floor|the warehouse|the Sunday meeting|the test environment|the main station|the next release",
  ],
  de: [
    "Der Kunde|Unser Server|Der neue Drucker|Die Versicherung|Das Haus|Die Datenbank|Eine Rechnung|Der Entwickler",
    "wartet auf|wird geprüft vor|braucht ein Passwort für|liegt neben|kostet mehr als|steht im Protokoll über",
    "den zweiten Stock|das Lager am Hafen|die Besprechung am Montag|das Gelände|den Bahnhof|die Gesellschaft",
  ],
  fr: [
    "Le client|Notre serveur|La nouvelle imprimante|L'équipe|Le gardien|La base de données|Une facture|Le fournisseur",
    "attend la réunion sur|a besoin d'un mot de passe pour|se trouve près de|reçoit un courrier pour|prépare la mise à jour de|paie",
    "le deuxième étage|l'entrepôt du port|la sortie de lundi|la gare|le déjeuner|la livraison des pièces",
  ],
  es: [
    "El cliente|Nuestro servidor|La nueva impresora|El equipo|El guardia|La base de datos|Una factura|El proveedor",
    "espera la reunión sobre|necesita una contraseña para|está cerca de|recibe un mensaje de|prepara la copia de|paga",
    "la segunda planta|el almacén del puerto|el viaje del lunes|la estación|la oficina de Madrid|el pedido de mayo",
  ],
  ru: [
    "Клиент|Наш сервер|Новый принтер|Команда|Инженер|База данных|Новый счёт|Поставщик",
    "ждёт собрания про|требует пароль для|находится рядом с местом, где|получает письмо про|проверяет|готовит обновление для",
    "второй этаж|склад в порту|поездку в понедельник|вокзал|офис в Москве|страницу отчёта",
  ],
  zh: [
    "客户|我们的服务器|新打印机|会议室|保安|数据库|发票|供应商",
    "需要新的密码用于|每周检查|已经搬到|位于|等待更新|正在准备",
    "二楼的办公室|港口的仓库|星期一的会议|火车站附近|北京的分公司|下一次培训",
  ],
  ja: [
    "お客様|当社のサーバー|新しいプリンター|会議室|受付|データベース|請求書|担当者",
    "のパスワードは変更済みで、次は|の場所は|の更新を待っているのは|の管理を行うのは|からの連絡は|を確認するのは",
    "二階の廊下です|港の倉庫です|月曜日の会議です|駅の近くです|大阪支社です|来週の研修です",
  ],
  ko: [
    "고객은|우리 서버는|새 프린터는|회의실은|안내 데스크는|데이터베이스는|송장은|담당자는",
    "비밀번호가 필요한|매주 점검하는|곧 옮겨 갈|가까이에 있는|연락을 기다리는|다음에 준비할",
    "이층 사무실입니다|항구 창고입니다|월요일 회의입니다|기차역입니다|서울 지사입니다|다음 교육입니다",
  ],
};

/** Returns 80 memories of each language that no query is about. They share the words of those that are. */
function distractors(): readonly (readonly [key: string, value: string])[] {
  const random = createSeededRandom();
  const pick = (list: string) => {
    const items = list.split("|");
    return items[(random.bytes(1)[0] ?? 0) % items.length] ?? "";
  };
  return Object.entries(DISTRACTORS).flatMap(([language, [subjects, actions, places]]) =>
    Array.from({ length: 80 }, (_, index): [string, string] => {
      const space = language === "zh" || language === "ja" ? "" : " ";
      const sentence = () => [pick(subjects), pick(actions), pick(places)].join(space);
      return [`other-${language}-${index}`, `${sentence()}. ${sentence()}`];
    })
  );
}

type Find = (query: string) => Promise<readonly string[]> | readonly string[];

async function hits(find: Find): Promise<ReadonlySet<string>> {
  const found = new Set<string>();
  for (const { key, query } of PARAPHRASES) if ((await find(query)).includes(key)) found.add(key);
  return found;
}

/** FTS5 alone over the same memories, with its own tokenizer: each piece of the query may match, the best first. */
function plainFts(tokenizer: string, piecesOf: (query: string) => readonly string[]): Find {
  const database = new DatabaseSync(":memory:");
  database.exec(`CREATE VIRTUAL TABLE texts USING fts5(key UNINDEXED, text, tokenize = '${tokenizer}')`);
  const put = database.prepare("INSERT INTO texts VALUES (?, ?)");
  for (const [key, value] of [...distractors(), ...PARAPHRASES.map(({ key, entry }) => [key, entry] as const)]) {
    put.run(key, value);
  }
  const search = database.prepare(`SELECT key FROM texts WHERE texts MATCH ? ORDER BY rank LIMIT ${RESULTS}`);
  return (query) => {
    const match = [...new Set(piecesOf(query))].map((piece) => `"${piece.replaceAll('"', '""')}"`).join(" OR ");
    return match === "" ? [] : search.all(match).map((row) => String(row["key"]));
  };
}

const wordsOf = (query: string) => query.match(/[\p{L}\p{N}\p{M}]+/gu) ?? [];

/** Every three characters of each word, which is the most that an index of trigrams can find. */
const trigramsOf = (query: string) =>
  wordsOf(query).flatMap((word) =>
    Array.from({ length: Math.max(0, word.length - 2) }, (_, at) => word.slice(at, at + 3))
  );

async function ours(store: Store): Promise<ReadonlySet<string>> {
  const memory = new Memory({ store, clock: createFakeClock() });
  for (const [key, value] of distractors()) await memory.store({ key, value });
  // The keys say nothing about the texts, so they are not searched for
  for (const { key, entry } of PARAPHRASES) await memory.store({ key, value: entry });
  return await hits(async (query) => (await memory.recall({ query, limit: RESULTS })).map(({ key }) => key));
}

const LANGUAGES = [...new Set(PARAPHRASES.map(({ language }) => language))];

function figures(found: ReadonlySet<string>): string {
  const ofLanguage = (language: string) => PARAPHRASES.filter((one) => one.language === language);
  const parts = LANGUAGES.map((language) =>
    `${language} ${ofLanguage(language).filter(({ key }) => found.has(key)).length}/${ofLanguage(language).length}`
  );
  return `${String(found.size).padStart(2)} of ${PARAPHRASES.length}: ${parts.join(", ")}`;
}

test("recall finds at least as many paraphrases in 8 languages as plain FTS5 with porter and trigram together", async (context) => {
  assert.deepEqual([PARAPHRASES.length, LANGUAGES.length], [60, 8]);
  const porter = await hits(plainFts("porter unicode61", wordsOf));
  const words = await hits(plainFts("trigram remove_diacritics 1", wordsOf));
  const trigrams = await hits(plainFts("trigram remove_diacritics 1", trigramsOf));
  const together = new Set([...porter, ...words, ...trigrams]);
  const inMemory = await ours(createMemoryStore());
  let onDisk: ReadonlySet<string> = new Set();
  await withTemporaryFolder(async (folder) => {
    const store = await openSqliteStore({ path: join(folder, "postern.db"), clock: createFakeClock() });
    onDisk = await ours(store);
    await store.close();
  });
  let onServer: ReadonlySet<string> = onDisk;
  if (NO_POSTGRES === false) await withPostgresStore(async (store) => void (onServer = await ours(store)));
  else context.diagnostic(`not on PostgreSQL: ${NO_POSTGRES}`);
  const table = {
    porter,
    "trigram, words": words,
    "trigram, all": trigrams,
    together,
    "ours, sqlite": onDisk,
    "ours, postgres": onServer,
  };
  for (const [name, found] of Object.entries(table)) context.diagnostic(`${name.padEnd(14)} ${figures(found)}`);
  context.diagnostic(`missed: ${PARAPHRASES.filter(({ key }) => !onDisk.has(key)).map(({ key }) => key).join(" ")}`);
  context.diagnostic(`only theirs: ${[...together].filter((key) => !onDisk.has(key)).join(" ")}`);
  assert.deepEqual(onDisk, inMemory);
  assert.ok(onDisk.size >= together.size, `${onDisk.size} of ours, ${together.size} of FTS5`);
  assert.ok(onServer.size >= together.size, `${onServer.size} of ours on PostgreSQL, ${together.size} of FTS5`);
});
