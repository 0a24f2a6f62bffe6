package triage

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// sampleBuffer holds the texts of a sample in memory that is used again: in
// the order of time, every dead letter is the newest of its group.
type sampleBuffer struct {
	buf  []byte
	ends [6]int
}

func (s *sampleBuffer) set(e Entry) {
	s.buf = s.buf[:0]
	for i, text := range [...]string{cutText(e.Text), cutName(e.ID), cutName(e.Code), cutName(e.Topic), cutName(e.Aggregate), cutName(e.TraceID)} {
		s.buf = append(s.buf, text...)
		s.ends[i] = len(s.buf)
	}
}

func (s *sampleBuffer) sample(failedAt time.Time) Sample {
	var texts [len(s.ends)]string
	start := 0
	for i, end := range s.ends {
		texts[i] = string(s.buf[start:end])
		start = end
	}
	return Sample{
		Text: texts[0], ID: texts[1], Code: texts[2], Topic: texts[3], Aggregate: texts[4], TraceID: texts[5],
		FailedAt: failedAt,
	}
}

// maxSampleRunes is where the text of a sample is cut.
const maxSampleRunes = 500

func cutName(s string) string {
	if len(s) > maxNameBytes {
		s = strings.ToValidUTF8(s[:maxNameBytes], "")
	}
	return s
}

func cutText(s string) string {
	if len(s) <= maxSampleRunes {
		return s
	}
	n := 0
	for i := range s {
		if n == maxSampleRunes {
			return s[:i]
		}
		n++
	}
	return s
}

func sortBadLines(p *Pass) {
	slices.SortFunc(p.BadLines, func(a, b BadLine) int { return cmp.Compare(a.Number, b.Number) })
	p.BadLines = p.BadLines[:min(len(p.BadLines), maxBadLines)]
}
