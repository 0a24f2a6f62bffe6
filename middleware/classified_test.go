package middleware_test

import (
	"testing"

	"github.com/spillway-mq/spillway/failure"
)

// wantClassified asks the classifier, as the chain does.
func wantClassified(t *testing.T, err error, nature failure.Nature, class failure.Class) {
	t.Helper()
	if f := (failure.Classifier{}).Classify(err); f.Nature != nature || f.Class != class {
		t.Errorf("error %v is %s, class %s; want %s, %s", err, f.Nature, f.Class, nature, class)
	}
}
