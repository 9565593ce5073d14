// Counts what the suite's cli.mjs found: score.mjs SUITE RESULT.json. Prints every failed required
// test, and the sums by kind beside those of the suite's own records of other servers, in both ways of
// counting: each test for itself, and as the suite's page shows them, where a test counts only if those
// it depends on have passed. Browser-only tests are left out, as the suite does for proxies.
import fs from 'fs'
import path from 'path'

const [suite, file] = process.argv.slice(2)
const from = name => import(path.resolve(suite, name))
const tests = (await from('tests/index.mjs')).default
const { determineTestResult, resultTypes } = await from('test-engine/lib/results.mjs')
const kinds = ['required', 'optimal', 'check']
const own = JSON.parse(fs.readFileSync(file))
const read = name => JSON.parse(fs.readFileSync(path.join(suite, 'results', name)))
const records = (await from('results/index.mjs')).default.filter(record => record.type !== 'browser')
const rows = [['this run', own], ...records.map(({ file, name, version }) => [`${name} ${version ?? ''}`, read(file)])]
const all = tests.flatMap(group => group.tests).filter(test => !test.browser_only)
const passes = { required: resultTypes.pass, optimal: resultTypes.optional_pass ?? resultTypes.pass, check: resultTypes.yes }

for (const test of all) {
  if ((test.kind ?? 'required') === 'required' && own[test.id] !== true) {
    console.log(`${test.id}: ${own[test.id]?.join?.(': ') ?? own[test.id]}`)
  }
}
const of = kind => all.filter(test => (test.kind ?? 'required') === kind)
const sums = results => kinds.map(kind => {
  const single = of(kind).filter(test => results[test.id] === true)
  const shown = single.filter(test => determineTestResult(tests, test.id, results) === passes[kind])
  return `${single.length} (${shown.length})`.padEnd(14)
})
console.log(`\npassed, each for itself (and as the suite's page counts)`)
console.log(''.padEnd(26) + kinds.map(kind => `${kind} ${of(kind).length}`.padEnd(14)).join(''))
for (const [name, results] of rows) console.log(name.slice(0, 25).padEnd(26) + sums(results).join(''))
