// Counts what the suite's cli.mjs found: score.mjs SUITE RESULT.json. Prints every failed required
// test and the sums by kind. Browser-only tests are left out, as the suite does for proxies.
import fs from 'fs'
import path from 'path'

const [suite, file] = process.argv.slice(2)
const tests = (await import(path.resolve(suite, 'tests/index.mjs'))).default
const results = JSON.parse(fs.readFileSync(file))
const score = {}
for (const group of tests) {
  for (const test of group.tests) {
    if (test.browser_only) continue
    const kind = test.kind || 'required'
    score[kind] ??= { pass: 0, of: 0 }
    score[kind].of++
    if (results[test.id] === true) score[kind].pass++
    else if (kind === 'required') console.log(`${test.id}: ${results[test.id]?.join(': ')}`)
  }
}
for (const [kind, { pass, of }] of Object.entries(score)) console.log(`${kind}: ${pass} of ${of}`)
