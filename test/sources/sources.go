// Package sources makes go test see that a test depends on programs which it builds and runs.
package sources

import (
	"io/fs"
	"os"
	"path/filepath"
)

// programs is what a program can be built from, beside the folder of its own.
var programs = []string{"go.mod", "go.sum", "proto"}

// Record looks at the sources below the root of the repository: those that every program has and the named ones. go test
// remembers what a test binary has looked at, so from then on a change there makes it run the tests again rather than repeat
// a result. It remembers only what happens inside of testing.M.Run: call Record from a test, not from TestMain.
func Record(root string, paths ...string) error {
	for _, path := range append(paths, programs...) {
		path = filepath.Join(root, path)
		if _, err := os.Stat(path); err != nil {
			return err
		}
		if err := filepath.WalkDir(path, func(_ string, _ fs.DirEntry, err error) error { return err }); err != nil {
			return err
		}
	}
	return nil
}
