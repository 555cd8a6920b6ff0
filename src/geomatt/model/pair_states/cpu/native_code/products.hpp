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

// R rows of the first factor, whose numbers lie `row` and `step` apart, times a panel: (R, PANEL).
template <int R> static void block(int inner, const float* a, long row, long step, const float* panel, float* out) {
    V sums[R][2];
    for (auto& line : sums) line[0] = line[1] = V{};
    for (int t = 0; t < inner; ++t) {
        const V left = Wide::load(panel + t * PANEL), right = Wide::load(panel + t * PANEL + WIDE);
        for (int r = 0; r < R; ++r) {
            const float x = a[r * row + t * step];
            sums[r][0] += x * left;
            sums[r][1] += x * right;
        }
    }
    for (int r = 0; r < R; ++r)
        for (int s = 0; s < 2; ++s) Wide::store(out + r * PANEL + s * WIDE, sums[r][s]);
}

static void block(int rows, int inner, const float* a, long row, long step, const float* panel, float* out) {
    switch (rows) {
        case 1: return block<1>(inner, a, row, step, panel, out);
        case 2: return block<2>(inner, a, row, step, panel, out);
        case 3: return block<3>(inner, a, row, step, panel, out);
        case 4: return block<4>(inner, a, row, step, panel, out);
        case 5: return block<5>(inner, a, row, step, panel, out);
        case 6: return block<6>(inner, a, row, step, panel, out);
        default: return block<7>(inner, a, row, step, panel, out);
    }
}

// (n, columns) = x (n, inner) · packed weights; `done(i, c, v)` takes the numbers c … of row i.
template <class Done>
static void transform(int n, int inner, int columns, const float* x, long row, const float* panels, Done done) {
    float out[TALL * PANEL];
    for (int at = 0; at < columns; at += PANEL)
        evenly(n, TALL, [&](int i, int rows) {
            block(rows, inner, x + i * row, row, 1, panels + long(at) * inner, out);
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
template <int R, int S> static void atoms_block(int count, const Strides& s, Factors one, Factors two, V* out) {
    V sums[R][S];
    for (auto& line : sums) for (V& sum : line) sum = V{};
    for (const Factors& f : {one, two}) {
        for (int t = 0; f.a && t < count; ++t) {
            V right[S];
            for (int j = 0; j < S; ++j) right[j] = Wide::load(f.b + j * s.column + t * s.next);
            for (int r = 0; r < R; ++r) {
                const V left = Wide::load(f.a + r * s.row + t * s.step);
                for (int j = 0; j < S; ++j) sums[r][j] += left * right[j];
            }
        }
    }
    for (int r = 0; r < R; ++r)
        for (int j = 0; j < S; ++j) out[r * S + j] = sums[r][j];
}

template <int R> static void atoms_block(int across, int count, const Strides& s, Factors one, Factors two, V* out) {
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
    V out[HIGH * BROAD];
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
                for (int x = 0; x < across; ++x) done(i + r, j + x, out[r * across + x]);
        });
    });
}
