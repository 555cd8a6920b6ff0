// Functions of vectors, and the two kinds of products that all sweeps are made of.

#pragma once

#include <cmath>
#include <cstdint>

#include "vectors.hpp"

using Wide = Lanes<WIDE>;
using V = Wide::V;

// ---- functions --------------------------------------------------------------------------------------------

// exp, to the last digit or two of float32; arguments beyond ±87 are taken as ±87.
static inline V exponential(V x) {
    typedef int32_t I __attribute__((vector_size(sizeof(V))));
    const V limit = V{} + 87.0f;
    x = x < -limit ? -limit : x;  // what is not a number stays that
    x = x > limit ? limit : x;
    const V round = (x * 1.44269504f + 12582912.0f) - 12582912.0f;  // x / ln 2
    const V r = x - round * 0.693359375f + round * 2.12194440e-4f;
    V y = r * 1.9875691500e-4f + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    const I power = (__builtin_convertvector(round, I) + 127) << 23;
    V scale;
    std::memcpy(&scale, &power, sizeof scale);
    return y * scale;
}
static inline V sigmoid(V x) { return 1.0f / (1.0f + exponential(-x)); }
static inline V silu(V x) { return x * sigmoid(x); }
static inline V silu_slope(V x) {
    const V s = sigmoid(x);
    return s * (1.0f + x * (1.0f - s));
}
static inline V silu_curvature(V x) {
    const V s = sigmoid(x);
    return s * (1.0f - s) * (2.0f + x * (1.0f - 2.0f * s));
}

// `work(i, size)` for blocks of at most `most` of n, as equal as can be.
template <class F> static void evenly(int n, int most, F work) {
    const int blocks = (n + most - 1) / most;
    for (int b = 0; b < blocks; ++b) {
        const int i = long(n) * b / blocks;
        work(i, int(long(n) * (b + 1) / blocks) - i);
    }
}

// R × S sums. As nested members and not as an array: compilers would keep that in memory.
template <int S> struct Line {
    V sum = {};
    Line<S - 1> others;
    template <class X> void add(X x, const V* y) {
        sum += x * y[S - 1];
        others.add(x, y);
    }
    void store(float* out) const {
        Wide::store(out + (S - 1) * WIDE, sum);
        others.store(out);
    }
};
template <> struct Line<0> {
    template <class X> void add(X, const V*) {}
    void store(float*) const {}
};
template <int R, int S> struct Sums {
    Line<S> line;
    Sums<R - 1, S> above;
    // += x(r) · y(s)
    template <class X> void add(X x, const V* y) {
        above.add(x, y);
        line.add(x(R - 1), y);
    }
    void store(float* out) const {
        above.store(out);
        line.store(out + (R - 1) * S * WIDE);
    }
};
template <int S> struct Sums<0, S> {
    template <class X> void add(X, const V*) {}
    void store(float*) const {}
};

// ---- products with weights --------------------------------------------------------------------------------
// The second factor is packed in panels of PANEL columns, each of which is (inner, PANEL).

constexpr int PANEL = 2 * WIDE, TALL = WIDE == 16 ? 7 : 6;  // TALL · 2 sums fill the registers

static void pack(float* panels, const float* from, int inner, int columns, long row, long column) {
    for (int at = 0; at < columns; at += PANEL)
        for (int t = 0; t < inner; ++t, panels += PANEL) {
            const float* x = from + t * row + at * column;
            const int width = std::min(PANEL, columns - at);
            if (column == 1 && width == PANEL) {
                for (int f = 0; f < PANEL; f += WIDE) Wide::store(panels + f, Wide::load(x + f));
            } else {
                for (int f = 0; f < PANEL; ++f) panels[f] = f < width ? x[f * column] : 0;
            }
        }
}

// R rows of the first factor times a panel, (R, PANEL). The factor's numbers lie `apart`: those of a row if it
// is TURNED, else its rows; the others are next to each other.
template <bool TURNED, int R>
static void block(int inner, const float* a, long apart, const float* panel, float* out) {
    Sums<R, 2> sums;
    for (int t = 0; t < inner; ++t) {
        const V right[] = {Wide::load(panel + t * PANEL), Wide::load(panel + t * PANEL + WIDE)};
        sums.add([&](int r) { return TURNED ? a[r + t * apart] : a[r * apart + t]; }, right);
    }
    sums.store(out);
}

template <bool TURNED>
static void block(int rows, int inner, const float* a, long apart, const float* panel, float* out) {
    switch (rows) {
        case 1: return block<TURNED, 1>(inner, a, apart, panel, out);
        case 2: return block<TURNED, 2>(inner, a, apart, panel, out);
        case 3: return block<TURNED, 3>(inner, a, apart, panel, out);
        case 4: return block<TURNED, 4>(inner, a, apart, panel, out);
        case 5: return block<TURNED, 5>(inner, a, apart, panel, out);
        case 6: return block<TURNED, 6>(inner, a, apart, panel, out);
        default: return block<TURNED, 7>(inner, a, apart, panel, out);
    }
}

// (n, columns) = x (n, inner) · packed weights; `done(i, c, v)` takes the numbers c … of row i.
template <class Done>
static void transform(int n, int inner, int columns, const float* x, long row, const float* panels, Done done) {
    float out[TALL * PANEL];
    for (int at = 0; at < columns; at += PANEL)
        evenly(n, TALL, [&](int i, int rows) {
            block<false>(rows, inner, x + i * row, row, panels + long(at) * inner, out);
            for (int r = 0; r < rows; ++r)
                for (int c = 0; c < PANEL; c += WIDE) done(i + r, at + c, Wide::load(out + r * PANEL + c));
        });
}

// ---- products over atoms, for every channel ---------------------------------------------------------------

// Vectors of channels: those of the first factor lie `row` and `step` apart, of the second `column` and `next`.
struct Strides { long row, step, column, next; };
struct Factors { const float *a, *b; };

constexpr int HIGH = 3, BROAD = WIDE == 16 ? 7 : 4;

// Σ_t a_rt b_ts + a′_rt b′_ts for R × S results.
template <int R, int S> static void atoms_block(int count, const Strides& s, Factors one, Factors two, float* out) {
    Sums<R, S> sums;
    for (const Factors& f : {one, two})
        for (int t = 0; f.a && t < count; ++t) {
            V right[S];
            for (int j = 0; j < S; ++j) right[j] = Wide::load(f.b + j * s.column + t * s.next);
            sums.add([&](int r) { return Wide::load(f.a + r * s.row + t * s.step); }, right);
        }
    sums.store(out);
}

template <int R>
static void atoms_block(int across, int count, const Strides& s, Factors one, Factors two, float* out) {
    switch (across) {
        case 1: return atoms_block<R, 1>(count, s, one, two, out);
        case 2: return atoms_block<R, 2>(count, s, one, two, out);
        case 3: return atoms_block<R, 3>(count, s, one, two, out);
        case 4: return atoms_block<R, 4>(count, s, one, two, out);
        case 5: return atoms_block<R, 5>(count, s, one, two, out);
        case 6: return atoms_block<R, 6>(count, s, one, two, out);
        default: return atoms_block<R, 7>(count, s, one, two, out);
    }
}

// For rows × columns results; `done(i, j, v)` takes them.
template <class Done>
static void over_atoms(int rows, int columns, int count, const Strides& s, Factors one, Factors two, Done done) {
    float out[HIGH * BROAD * WIDE];
    auto moved = [&](Factors f, int i, int j) {
        return f.a ? Factors{f.a + i * s.row, f.b + j * s.column} : f;
    };
    evenly(columns, BROAD, [&](int j, int across) {
        evenly(rows, HIGH, [&](int i, int high) {
            const Factors first = moved(one, i, j), second = moved(two, i, j);
            if (high == 1) atoms_block<1>(across, count, s, first, second, out);
            else if (high == 2) atoms_block<2>(across, count, s, first, second, out);
            else atoms_block<3>(across, count, s, first, second, out);
            for (int r = 0; r < high; ++r)
                for (int x = 0; x < across; ++x) done(i + r, j + x, Wide::load(out + (r * across + x) * WIDE));
        });
    });
}
