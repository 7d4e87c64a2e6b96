// Validates a bill of materials by CycloneDX's own schema, and compares it with the one that CycloneDX's own tool made
// of a binary: both must name the same program and the same libraries.
//
//     node sbom.js BILL BILL-OF-THE-TOOL

const fs = require('fs');
const { Spec, Validation } = require('@cyclonedx/cyclonedx-library');

const [ours, theirs] = process.argv.slice(2).map((file) => fs.readFileSync(file, 'utf8'));

function fail(problem) {
  console.error('sbom:', problem);
  process.exit(1);
}

// contents returns the name and the version of the program, and of each library. The tool calls Go's library std, of a
// version such as go1.26. The databases of vulnerabilities, and our bill, call it stdlib, of the version 1.26.
function contents(bill) {
  const nameOf = (c) => c.name.replace(/^std$/, 'stdlib') + ' ' + c.version.replace(/^go/, '');
  const { metadata, components } = JSON.parse(bill);
  return [metadata.component, ...components].map(nameOf).sort().join(', ');
}

async function main() {
  const problem = await new Validation.JsonStrictValidator(Spec.Version.v1dot6).validate(ours);
  if (problem !== null) {
    fail(JSON.stringify(problem, null, 2));
  }
  if (contents(ours) !== contents(theirs)) {
    fail(`the bill has ${contents(ours)}, but the tool finds ${contents(theirs)}`);
  }
  console.log('the bill of materials is valid, and has:', contents(ours));
}

main();
