package signature_test

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/triage/signature"
)

// loghub finds a folder of logs of which people have said which lines belong
// together. It is no part of the repository, and lies beside it.
func loghub(t *testing.T) []string {
	t.Helper()
	for up := "../../../"; len(up) < 30; up += "../" {
		if files, err := filepath.Glob(up + "shared/data/loghub/*.csv"); err == nil && len(files) > 0 {
			return files
		}
	}
	return nil
}

// accuracyFloor is slightly below what the rules reach, and accuracyFloors are
// for each log, so that none is paid for by another.
const accuracyFloor = 0.92

var accuracyFloors = map[string]float64{
	"Android": 0.94, "Apache": 1, "BGL": 0.945, "HDFS": 1, "Hadoop": 0.985, "OpenStack": 0.50, "Spark": 1, "Windows": 0.99,
}

// The measure is the share of lines whose group holds exactly the lines of
// their true group. One set of rules serves all logs.
func TestGroupingAccuracy(t *testing.T) {
	t.Parallel()
	files := loghub(t)
	if len(files) == 0 {
		t.Skip("there is no shared/data/loghub beside the repository")
	}
	sum := 0.0
	for _, file := range files {
		accuracy, err := groupingAccuracy(t, file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".csv")
		t.Logf("%-12s %.4f", name, accuracy)
		if floor := accuracyFloors[name]; accuracy < floor {
			t.Errorf("accuracy on %s is %.4f, want at least %v", name, accuracy, floor)
		}
		sum += accuracy
	}
	mean := sum / float64(len(files))
	t.Logf("%-12s %.4f", "mean", mean)
	if mean < accuracyFloor {
		t.Errorf("mean accuracy %.4f, want at least %v", mean, accuracyFloor)
	}
}

func groupingAccuracy(t *testing.T, file string) (float64, error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return 0, err
	}
	type pair struct{ truth, id string }
	truths, ids, pairs := map[string]int{}, map[string]int{}, map[pair]int{}
	for _, row := range rows[1:] {
		p := pair{row[0], signature.Of(row[1]).ID}
		truths[p.truth]++
		ids[p.id]++
		pairs[p]++
	}
	right := 0
	for p, n := range pairs {
		if truths[p.truth] == n && ids[p.id] == n {
			right += n
		}
	}
	return float64(right) / float64(len(rows)-1), nil
}
