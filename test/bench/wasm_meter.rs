//! Work that the bench of metering times: plain Rust, as plugins are written in it. Each function takes a size and returns a checksum.
use std::collections::{BTreeMap, HashMap};

struct Random(u32);
impl Random {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }
}

#[no_mangle]
pub extern "C" fn empty_loop(size: u32) -> u32 {
    let mut value = 0u32;
    for index in 0..size * 1000 {
        value = std::hint::black_box(index);
    }
    value
}

#[no_mangle]
pub extern "C" fn fib(size: u32) -> u32 {
    if size < 2 { size } else { fib(size - 1) + fib(size - 2) }
}

#[no_mangle]
pub extern "C" fn sieve(size: u32) -> u32 {
    let mut composite = vec![false; size as usize];
    let mut primes = 0;
    for at in 2..size as usize {
        if composite[at] {
            continue;
        }
        primes += 1;
        let mut multiple = at * at;
        while multiple < size as usize {
            composite[multiple] = true;
            multiple += at;
        }
    }
    primes
}

#[no_mangle]
pub extern "C" fn matrix(size: u32) -> u32 {
    let n = size as usize;
    let a: Vec<f64> = (0..n * n).map(|at| at as f64 * 0.5).collect();
    let b: Vec<f64> = (0..n * n).map(|at| at as f64 * 0.25).collect();
    let mut c = vec![0.0; n * n];
    for row in 0..n {
        for column in 0..n {
            let mut sum = 0.0;
            for at in 0..n {
                sum += a[row * n + at] * b[at * n + column];
            }
            c[row * n + column] = sum;
        }
    }
    c.iter().sum::<f64>() as u32
}

#[no_mangle]
pub extern "C" fn sort(size: u32) -> u32 {
    let mut random = Random(7);
    let mut values: Vec<u32> = (0..size).map(|_| random.next()).collect();
    values.sort();
    values[size as usize / 2]
}

#[no_mangle]
pub extern "C" fn hash_map(size: u32) -> u32 {
    let mut random = Random(7);
    let mut map = HashMap::new();
    for _ in 0..size {
        *map.entry(random.next() % (size / 2)).or_insert(0u32) += 1;
    }
    map.values().max().copied().unwrap_or(0)
}

#[no_mangle]
pub extern "C" fn words(size: u32) -> u32 {
    let mut random = Random(7);
    let mut text = String::new();
    for _ in 0..size {
        text.push_str(&format!("Word{} ", random.next() % 1000));
    }
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for word in text.split_whitespace() {
        *counts.entry(word.to_lowercase()).or_default() += 1;
    }
    counts.values().max().copied().unwrap_or(0)
}

const K: [u32; 64] = {
    // The first 32 bits of the fractions of cube roots stand for themselves: any constants time the same
    let mut table = [0u32; 64];
    let mut at = 0;
    while at < 64 {
        table[at] = (at as u32).wrapping_mul(0x9e37_79b9) ^ 0x428a_2f98;
        at += 1;
    }
    table
};

#[no_mangle]
pub extern "C" fn sha256(size: u32) -> u32 {
    let data: Vec<u8> = (0..size).map(|at| at as u8).collect();
    let mut state = [0x6a09e667u32, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];
    for block in data.chunks_exact(64) {
        let mut w = [0u32; 64];
        for (at, word) in block.chunks_exact(4).enumerate() {
            w[at] = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
        }
        for at in 16..64 {
            let s0 = w[at - 15].rotate_right(7) ^ w[at - 15].rotate_right(18) ^ (w[at - 15] >> 3);
            let s1 = w[at - 2].rotate_right(17) ^ w[at - 2].rotate_right(19) ^ (w[at - 2] >> 10);
            w[at] = w[at - 16].wrapping_add(s0).wrapping_add(w[at - 7]).wrapping_add(s1);
        }
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
        for at in 0..64 {
            let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let t1 = h.wrapping_add(s1).wrapping_add((e & f) ^ (!e & g)).wrapping_add(K[at]).wrapping_add(w[at]);
            let t2 = (a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22)).wrapping_add((a & b) ^ (a & c) ^ (b & c));
            (h, g, f, e, d, c, b, a) = (g, f, e, d.wrapping_add(t1), c, b, a, t1.wrapping_add(t2));
        }
        for (value, add) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *value = value.wrapping_add(add);
        }
    }
    state[0]
}

enum Json {
    Null,
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn space(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\n' | b'\t' | b',' | b':')) {
            self.at += 1;
        }
    }
    fn text(&mut self) -> String {
        self.at += 1;
        let mut text = String::new();
        while self.bytes[self.at] != b'"' {
            if self.bytes[self.at] == b'\\' {
                self.at += 1;
            }
            text.push(self.bytes[self.at] as char);
            self.at += 1;
        }
        self.at += 1;
        text
    }
    fn value(&mut self) -> Json {
        self.space();
        match self.bytes[self.at] {
            b'{' => {
                self.at += 1;
                let mut fields = Vec::new();
                loop {
                    self.space();
                    if self.bytes[self.at] == b'}' {
                        self.at += 1;
                        return Json::Object(fields);
                    }
                    let name = self.text();
                    fields.push((name, self.value()));
                }
            }
            b'[' => {
                self.at += 1;
                let mut items = Vec::new();
                loop {
                    self.space();
                    if self.bytes[self.at] == b']' {
                        self.at += 1;
                        return Json::List(items);
                    }
                    items.push(self.value());
                }
            }
            b'"' => Json::Text(self.text()),
            b'n' => {
                self.at += 4;
                Json::Null
            }
            _ => {
                let start = self.at;
                while matches!(self.bytes[self.at], b'0'..=b'9' | b'.' | b'-' | b'e') {
                    self.at += 1;
                }
                Json::Number(std::str::from_utf8(&self.bytes[start..self.at]).unwrap().parse().unwrap())
            }
        }
    }
}

fn weigh(value: &Json) -> u32 {
    match value {
        Json::Null => 1,
        Json::Number(number) => *number as u32,
        Json::Text(text) => text.len() as u32,
        Json::List(items) => items.iter().map(weigh).fold(0, u32::wrapping_add),
        Json::Object(fields) => fields.iter().map(|(name, value)| weigh(value) + name.len() as u32).fold(0, u32::wrapping_add),
    }
}

#[no_mangle]
pub extern "C" fn json(size: u32) -> u32 {
    let mut text = String::from("[");
    for at in 0..size {
        text.push_str(&format!("{{\"id\": {at}, \"name\": \"item \\\"{at}\\\"\", \"tags\": [\"a\", \"b\", null], \"price\": {}.25}}, ", at * 3));
    }
    text.push(']');
    weigh(&Parser { bytes: text.as_bytes(), at: 0 }.value())
}

/// Matcher of `.`, `*`, `^`, `$` and plain characters, as in "The Practice of Programming".
fn matches_here(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => true,
        [b'$'] => text.is_empty(),
        [one, b'*', rest @ ..] => {
            let mut at = 0;
            loop {
                if matches_here(rest, &text[at..]) {
                    return true;
                }
                if at == text.len() || *one != b'.' && text[at] != *one {
                    return false;
                }
                at += 1;
            }
        }
        [one, rest @ ..] => !text.is_empty() && (*one == b'.' || text[0] == *one) && matches_here(rest, &text[1..]),
    }
}

#[no_mangle]
pub extern "C" fn regex(size: u32) -> u32 {
    let mut random = Random(7);
    let mut found = 0;
    for _ in 0..size {
        let line: Vec<u8> = (0..80).map(|_| b'a' + (random.next() % 6) as u8).collect();
        found += (0..line.len()).any(|at| matches_here(b"a.*b.*cde*f", &line[at..])) as u32;
    }
    found
}

#[no_mangle]
pub extern "C" fn bytes_copy(size: u32) -> u32 {
    let source: Vec<u8> = (0..64u32).map(|at| at as u8).collect();
    let mut target = Vec::with_capacity(size as usize);
    while target.len() < size as usize {
        target.extend_from_slice(&source[..1 + target.len() % 60]);
    }
    target.iter().map(|byte| *byte as u32).fold(0, u32::wrapping_add)
}
