/** Fewest characters that an ending leaves of its word. */
const MIN_STEM = 3;
/** Longer words are names and numbers rather than forms of a word. */
const MAX_STEMMED_CHARACTERS = 40;

/** Endings of English, German, French and Spanish, folded. The language of a text is not known, so each word is tried with all of them. */
const LATIN_ENDINGS = endingsOf(
  // English
  "ations ation ating ated ators ator ments ment ings ing ers er ed ies ied es s ly ness ences ence ents ent ances ance ants ant " +
    "ables able y " +
    // German
    "ungen ung heiten heit keiten keit lichen licher liches liche lich ischen ischer ische isch innen ern ens en em e n " +
    // French
    "ements ement aient ait ateurs ateur euses euse eurs eur ages age iques ique ives ive ees ee ez aux " +
    // Spanish
    "aciones acion iones ion amientos amiento mientos miento amente mente adores ador adas ados ada ado idas idos ida ido ando " +
    "iendo aron ieron aban aba ar ir an as os ico ica icos icas ias ia io o a i",
);

/** Endings of Russian, folded: \u0439 and \u0451 are written without their marks. Other Slavic languages share most of them. */
const CYRILLIC_ENDINGS = endingsOf(
  "иями ями ами ого его ому ему ыми ими ешь ете ишь ите остью ости ость ениями ениям ениях ения ение ению ением ении " +
    "аниями аниям аниях ания ание анию анием ании ться тся лась лись лось лся ются утся ятся ается ается яется ают уют " +
    "яют ает яет ует ала али ало ила или ило ать ять ить еть ыть ых их ыи ии ои еи ая яя ое ее ую юю ые ие ым им ом ем ам ям ах " +
    "ях ов ев ью ия ию иям иях а я о е ы и у ю ь",
);

/**
 * Returns the part that the forms of a folded word share, or the word itself where it has no known ending.
 *
 * The stemmer is light: one ending is taken off by one list of endings for each script, without a dictionary, so that the result is the
 * same on every runtime. Words of other scripts are their own stems.
 */
export function stemWord(word: string): string {
  if (word.length <= MIN_STEM || word.length > MAX_STEMMED_CHARACTERS) return word;
  if (/^[a-z]+$/.test(word)) return latinStemOf(word);
  if (/^[\u0430-\u045f]+$/.test(word)) return withoutEnding(word, CYRILLIC_ENDINGS);
  return word;
}

function latinStemOf(word: string): string {
  // "class" and "bus" are no plurals, and "deploy" is not "deplo"
  if (/[su]s$|[aeiou]y$/.test(word)) return word;
  const stem = withoutEnding(word, LATIN_ENDINGS);
  if (!/[aeiouy]/.test(stem)) return word;
  // "running" and "run", but "calling"
  return stem !== word && stem.length > MIN_STEM && /([bdgmnprt])\1$/.test(stem) ? stem.slice(0, -1) : stem;
}

/** Takes off the longest ending that leaves enough of the word. */
function withoutEnding(word: string, endings: ReadonlySet<string>): string {
  for (let length = Math.min(MAX_ENDING, word.length - MIN_STEM); length > 0; length--) {
    if (endings.has(word.slice(-length))) return word.slice(0, -length);
  }
  return word;
}

const MAX_ENDING = 8;

function endingsOf(words: string): ReadonlySet<string> {
  return new Set(words.split(" "));
}

const COMMON_WORDS: ReadonlySet<string> = endingsOf(
  // English
  "a about an and are as at be been but by can did do does for from had has have he her his how i if in into is it its me my not of on " +
    "or our she should so than that the their them then there these they this to was we were what when where which who why will with " +
    "would you your " +
    // German
    "aber als am an auch auf aus bei beim bin bis das dass dem den der des die dies diese dieser du ein eine einem einen einer eines er es " +
    "fur hat haben ich ihr im in ist ja kann kein keine man mein mich mit nach nicht noch nur oder ohne sein sich sie sind so uber um und " +
    "uns unser unsere unter vom von vor war was wann wenn wer wie wir wird wo zu zum zur " +
    // French
    "au aux avec ce ces cette chez comme dans de des du elle en est et eux il ils je la le les leur leurs lui ma mais mes mon ne nous on ou " +
    "par pas pour qu quand que quel quelle qui sa sans se ses son sont sur ta tu un une vos votre vous y " +
    // Spanish
    "al como con cual cuando cuanto del desde donde el ella ellos entre era es esta este esto estan ha hay la las lo los mas me mi muy no " +
    "nos o para pero por porque que quien se ser si sin sobre son su sus tambien te tiene un una uno y ya yo " +
    // Russian
    "а без бы был была были было в вам вас во вот все вы где да для до его ее если есть еще же за и из или им их к как когда кто ли мне мои " +
    "мы на не него нет но о об он она они от по при с со так там то только ты у уже чем что чтобы это этот я",
);

/** Returns true for a folded word that most texts of its language have. */
export function isCommonWord(word: string): boolean {
  return COMMON_WORDS.has(word);
}
