package retrytopic

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	// progressPrefix tells our metadata from that of others, and its version.
	progressPrefix = "spillway1:"
	// MaxProgress is the most bytes that [Progress.Encode] returns. Kafka takes
	// 4,096 unless told otherwise.
	MaxProgress = 4_096
	// MaxTrials is how many trials a progress keeps, those of the lowest offsets.
	MaxTrials = 128

	maxCount  = 1 << 20
	maxOffset = 1 << 62
)

// Progress is what a consumer stores with its position in a partition.
type Progress struct {
	// Offsets that are finished.
	Offsets *Offsets
	// Owner is whoever holds the partition, or held it last.
	Owner uint64
	// Topic tells the topic from another one of its name: positions outlive a
	// topic that is deleted. Zero means that it is not known.
	Topic uint64
	// Running: the owner has not let go of it, or could not say so.
	Running bool
	// Careful: what is handed out is among the trials before it is handed out.
	Careful bool
	// Blamed: what lies below this offset and is not finished may have been
	// handed out when a consumer ended that was not careful. Zero means nothing.
	Blamed int64
	// Until is the offset up to which to be careful. Zero means not at all.
	Until int64
	// Trials by offset, ascending.
	Trials []Trial
}

// Trial is an offset whose processing did not end, or has only begun.
type Trial struct {
	Offset int64
	// Crashes is how often its consumer ended meanwhile.
	Crashes int
	// Out: it is handed out now.
	Out bool
}

// errProgress is returned for text that is no progress.
var errProgress = errors.New("not a consumer's progress")

// Encode returns the progress as text, without the mark, which is the position
// that it is stored with.
func (p Progress) Encode() string {
	bitmap := p.Offsets.bitmap()
	var flags byte
	if p.Running {
		flags |= 1
	}
	if p.Careful {
		flags |= 2
	}
	raw := make([]byte, 0, 32+len(bitmap)+5*len(p.Trials))
	raw = append(raw, flags)
	raw = binary.LittleEndian.AppendUint64(raw, p.Owner)
	raw = binary.LittleEndian.AppendUint64(raw, p.Topic)
	raw = binary.AppendUvarint(raw, uint64(len(bitmap)))
	raw = append(raw, bitmap...)
	for _, offset := range []int64{p.Blamed, p.Until} {
		raw = binary.AppendUvarint(raw, uint64(max(offset-p.Offsets.mark, 0)))
	}
	trials := p.Trials[:min(len(p.Trials), MaxTrials)]
	raw = binary.AppendUvarint(raw, uint64(len(trials)))
	for _, t := range trials {
		raw = binary.AppendUvarint(raw, uint64(max(t.Offset-p.Offsets.mark, 0)))
		count := uint64(min(max(t.Crashes, 0), maxCount)) << 1
		if t.Out {
			count |= 1
		}
		raw = binary.AppendUvarint(raw, count)
	}
	return progressPrefix + base64.RawStdEncoding.EncodeToString(raw)
}

// DecodeProgress reads what Encode wrote, to be stored with the position mark.
// Text of another client, and an empty one, is an error.
func DecodeProgress(mark int64, text string) (Progress, error) {
	encoded, ok := strings.CutPrefix(text, progressPrefix)
	if !ok || mark < 0 || mark > maxOffset || len(text) > MaxProgress {
		return Progress{}, errProgress
	}
	raw, err := base64.RawStdEncoding.DecodeString(encoded)
	if err != nil || len(raw) < 17 {
		return Progress{}, errProgress
	}
	p := Progress{Running: raw[0]&1 != 0, Careful: raw[0]&2 != 0, Owner: binary.LittleEndian.Uint64(raw[1:])}
	p.Topic = binary.LittleEndian.Uint64(raw[9:])
	raw = raw[17:]
	size, raw, err := uvarint(raw)
	if err != nil || size > MaxSpan/8 || size > uint64(len(raw)) {
		return Progress{}, fmt.Errorf("%w: its bitmap is broken", errProgress)
	}
	p.Offsets, raw = offsetsOf(mark, raw[:size]), raw[size:]
	for _, offset := range []*int64{&p.Blamed, &p.Until} {
		var delta uint64
		if delta, raw, err = uvarint(raw); err != nil || delta > maxOffset {
			return Progress{}, fmt.Errorf("%w: its bounds are broken", errProgress)
		}
		if delta > 0 {
			*offset = mark + int64(delta)
		}
	}
	n, raw, err := uvarint(raw)
	if err != nil || n > MaxTrials {
		return Progress{}, fmt.Errorf("%w: its trials are broken", errProgress)
	}
	for range n {
		var delta, count uint64
		if delta, raw, err = uvarint(raw); err == nil {
			count, raw, err = uvarint(raw)
		}
		if err != nil || delta > 2*MaxSpan || count > 2*maxCount+1 {
			return Progress{}, fmt.Errorf("%w: its trials are broken", errProgress)
		}
		p.Trials = append(p.Trials, Trial{Offset: mark + int64(delta), Crashes: int(count >> 1), Out: count&1 != 0})
	}
	slices.SortFunc(p.Trials, func(a, b Trial) int { return int(a.Offset - b.Offset) })
	p.Trials = slices.CompactFunc(p.Trials, func(a, b Trial) bool { return a.Offset == b.Offset })
	return p, nil
}

func uvarint(raw []byte) (uint64, []byte, error) {
	v, n := binary.Uvarint(raw)
	if n <= 0 {
		return 0, nil, errProgress
	}
	return v, raw[n:], nil
}
