package archtest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/internal/archtest"
)

const root = "../.."

func TestPackagesImportOnlyWhatTheTableAllows(t *testing.T) {
	t.Parallel()
	// Reading the files first is what makes the test cache right: go test does
	// not see what `go list` reads, and would repeat an old result.
	readFiles(t)
	pkgs, err := goList(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range archtest.Spillway.Check(pkgs) {
		t.Error(problem)
	}
}

func TestFilesAreFinishedAndPortable(t *testing.T) {
	t.Parallel()
	for _, problem := range archtest.CheckFiles(readFiles(t)) {
		t.Error(problem)
	}
}

// The clone's own path is a path of somebody's machine even where it does not
// look like one. Short ones, such as /src or /tmp/spillway, may mean anything.
func TestFilesDoNotNameThisClone(t *testing.T) {
	t.Parallel()
	clone, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(filepath.ToSlash(clone), "/") < 3 {
		return
	}
	for _, f := range readFiles(t) {
		if strings.Contains(f.Text, clone) {
			t.Errorf("%s names %s", f.Path, clone)
		}
	}
}

func readFiles(t *testing.T) []archtest.File {
	t.Helper()
	files, err := archtest.ReadFiles(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// goList returns the packages of the module in dir and all that they depend
// on. It needs no network: go list reads the build list and the module cache.
func goList(dir string) ([]archtest.Package, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Doc,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, &stderr)
	}
	var pkgs []archtest.Package
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p archtest.Package
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		pkgs = append(pkgs, p)
	}
}
