// Package course leads a student through "build your own": twelve stages, in each of which a controller learns to
// survive what the stage before does not. The finished stages, with their pages and hints, are in the directory learn.
//
// Each stage has rows of package trial that it passes, and that the stage before fails. The student's program has to
// pass the rows of its stage, and those of all stages before it.
//
// Files, apart from tests:
//   - stages.go is the table of the stages and their rows;
//   - student.go keeps the student's program, and where the student stands;
//   - commands.go is what the student types: learn, check, hint and answer;
//   - check.go puts the student's program to the rows;
//   - staged.go tests the finished stages, and pages.go what their pages show.
package course
