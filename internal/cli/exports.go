package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/sqs/redrive"
)

// maxExport bounds one file; an export of a queue has a few kilobytes.
const maxExport = 64 << 20

// checkExports looks at exported attributes of SQS: at two files, or at those of
// a folder.
func checkExports(c *call, f checkFlags, paths []string) error {
	if err := f.exports.Validate(); err != nil {
		return usagef("%w", err)
	}
	if len(paths) == 2 && (f.exports.Exclude != nil || f.application != "") {
		return usagef("--application and --exclude are about a folder: two files are a source and its dead letter queue")
	}
	if f.application != "" {
		data, err := readExport(f.application)
		if err != nil {
			return err
		}
		if f.exports.Application, err = redrive.ParseApplication(data); err != nil {
			return fmt.Errorf("%s: %w", f.application, err)
		}
	}
	check := checkFolder
	if len(paths) == 2 {
		check = checkPair
	}
	report, err := check(paths, f.exports)
	if err != nil {
		return err
	}
	if c.output == "table" {
		for _, link := range report.Links {
			if len(paths) == 1 {
				fmt.Fprintf(c.out, "%s: ", clean(link.Source))
			}
			fmt.Fprintln(c.out, clean(link.String()))
		}
	}
	if err := printFindings(c, report.Findings, count(report.Queues, "queue")); err != nil {
		return err
	}
	return verdict(report.Findings, f.strict)
}

func checkPair(paths []string, opts redrive.Options) (redrive.Report, error) {
	var exports [2]redrive.Export
	var findings []adapters.Finding
	for i, path := range paths {
		if isFolder(path) {
			return redrive.Report{}, usagef("%s is a folder: check sqs takes two files, or one folder", path)
		}
		data, err := readExport(path)
		if err != nil {
			return redrive.Report{}, err
		}
		export, found := redrive.ParseOne(path, data)
		exports[i], findings = export, append(findings, found...)
	}
	if len(findings) > 0 {
		return redrive.Report{Findings: findings, Queues: len(exports)}, nil
	}
	return redrive.CheckPair(exports[0], exports[1], opts), nil
}

// checkFolder looks at all queues of a folder, or of one file.
func checkFolder(paths []string, opts redrive.Options) (redrive.Report, error) {
	files := paths
	if folder := paths[0]; isFolder(folder) {
		files = nil
		entries, err := os.ReadDir(folder)
		if err != nil {
			return redrive.Report{}, err
		}
		for _, entry := range entries {
			path := filepath.Join(folder, entry.Name())
			if strings.EqualFold(filepath.Ext(path), ".json") && !isFolder(path) {
				files = append(files, path)
			}
		}
		if len(files) == 0 {
			return redrive.Report{}, fmt.Errorf("there is no *.json in %s", folder)
		}
	}
	var exports []redrive.Export
	var findings []adapters.Finding
	for _, path := range files {
		data, err := readExport(path)
		if err != nil {
			return redrive.Report{}, err
		}
		several, found := redrive.Parse(path, data)
		exports, findings = append(exports, several...), append(findings, found...)
	}
	// What could not be read may be a queue that another one names.
	opts.Partial = len(findings) > 0
	report := redrive.Check(exports, opts)
	report.Findings = append(findings, report.Findings...)
	return report, nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func readExport(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxExport+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxExport:
		return nil, fmt.Errorf("%s has more than %d MiB", path, maxExport>>20)
	}
	return data, nil
}
