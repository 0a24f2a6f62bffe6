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
	// MaxAccused is how many owners a progress can name as ended.
	MaxAccused = 7

	maxCrashes = 63 // more are as good
	maxCount   = 1 << 20
	maxOffset  = 1 << 62
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
	// BlamedBy has the bit of the owner whose end that was.
	BlamedBy uint8
	// Until is the offset up to which to be careful. Zero means not at all.
	Until int64
	// Trials by offset, ascending.
	Trials []Trial
	// Accused are owners that are thought to have ended without letting go, and may
	// be heard of again. Counts that they caused have their bits. At most
	// MaxAccused.
	Accused []uint64
}

// Trial is an offset whose processing did not end, or has only begun.
type Trial struct {
	Offset int64
	// Crashes is how often its consumer ended meanwhile; at most 63 are kept.
	Crashes int
	// By has the bits of those of Progress.Accused that are among these.
	By uint8
	// Out: it is handed out now.
	Out bool
}

// errProgress is returned for text that is no progress.
var errProgress = errors.New("not a consumer's progress")

// Encode returns the progress as text, without the mark, which is the position
// that it is stored with.
func (p Progress) Encode() string { return p.encode(p.Offsets.bitmap()) }

// EncodeWithin is Encode for stores that take fewer bytes: it leaves out finished
// offsets, the highest first, then the accused, then trials, the highest first. What
// is left out is processed again, or not known. It returns the empty text where there is no room at all.
func (p Progress) EncodeWithin(most int) string {
	bitmap := p.Offsets.bitmap()
	text := p.encode(bitmap)
	for len(text) > most {
		over := (len(text)-most)*3/4 + 1
		switch {
		case len(bitmap) > 0:
			bitmap = bitmap[:max(len(bitmap)-over, 0)]
		case len(p.Accused) > 0:
			p.Accused = nil
		case len(p.Trials) > 0:
			p.Trials = p.Trials[:min(len(p.Trials), MaxTrials)]
			p.Trials = p.Trials[:max(len(p.Trials)-(over+6)/7, 0)]
		default:
			return ""
		}
		text = p.encode(bitmap)
	}
	return text
}

func (p Progress) encode(bitmap []byte) string {
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
		count := uint64(min(max(t.Crashes, 0), maxCrashes)) << 1
		if t.Out {
			count |= 1
		}
		raw = binary.AppendUvarint(raw, count)
	}
	accused := p.Accused[:min(len(p.Accused), MaxAccused)]
	if len(accused) > 0 {
		raw = append(raw, byte(len(accused)))
		for _, owner := range accused {
			raw = binary.LittleEndian.AppendUint64(raw, owner)
		}
		raw = append(raw, p.BlamedBy)
		for _, t := range trials {
			raw = append(raw, t.By)
		}
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
		p.Trials = append(p.Trials, Trial{Offset: mark + int64(delta), Crashes: min(int(count>>1), maxCrashes), Out: count&1 != 0})
	}
	if !p.accuse(raw) {
		return Progress{}, fmt.Errorf("%w: what it names as ended is broken", errProgress)
	}
	slices.SortFunc(p.Trials, func(a, b Trial) int { return int(a.Offset - b.Offset) })
	p.Trials = slices.CompactFunc(p.Trials, func(a, b Trial) bool { return a.Offset == b.Offset })
	return p, nil
}

// accuse reads the names of owners that ended, which older versions do not write.
func (p *Progress) accuse(raw []byte) bool {
	if len(raw) == 0 {
		return true
	}
	n := int(raw[0])
	if n == 0 || n > MaxAccused || len(raw) != 1+8*n+1+len(p.Trials) {
		return false
	}
	for raw = raw[1:]; len(p.Accused) < n; raw = raw[8:] {
		p.Accused = append(p.Accused, binary.LittleEndian.Uint64(raw))
	}
	named := uint8(1)<<n - 1
	p.BlamedBy = raw[0] & named
	for i := range p.Trials {
		p.Trials[i].By = raw[1+i] & named
	}
	return true
}

func uvarint(raw []byte) (uint64, []byte, error) {
	v, n := binary.Uvarint(raw)
	if n <= 0 {
		return 0, nil, errProgress
	}
	return v, raw[n:], nil
}
