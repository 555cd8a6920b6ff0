// The chains of `dense/chain.py` and the interpolation of `tables.py`, for one stream, structure and layer.
//
// Names, symmetries and signs are those of `chain.py`: X_1 … X_J are modules (N, N, F), symmetric in the atoms;
// prefix, suffix, bar, dot and hat as there. Channels are the last axis, over which the code is vectorised.
// Of arrays over pairs of atoms only the part i ≤ k is read.

#pragma once

#include <cstdint>

#include "products.hpp"

struct Stream {
    int32_t atoms, structures, layers, modules, width, rows;
    int64_t space;        // floats in the work space of a thread, enough for a unit of any stream
    const float* table;   // (J, layers, rows, F), three rows per node
    const int32_t* cell;  // (B, N, N), the node below a distance
    const float* value;   // (B, N, N, 6), weights of six rows; zero for padding
    const float* slope;   // (B, N, N, 6)
    // Results that later sweeps use. Modules and their dots are not stored: interpolating them again takes less
    // time than reading them from memory. R = layers · B.
    float* prefix;        // prefix_2 … prefix_{J−1}: (J − 2, R, N, N, F)
    float* suffix;        // suffix_2 … suffix_{J−1}, as prefix
    float* prefix_dots;   // as prefix
    float* bars;          // both directions of a pair added, i ≤ k: (J, R, N (N + 1) / 2, F)
    float* alpha;         // (R, N, N), as all below
    float* alpha_bar;
    float* alpha_dot;
    float* alpha_hat;
    float* pull;          // the stream's share of ∂E/∂d
    float* by_table;      // ∂loss/∂table in SHARES partial sums: (SHARES, J, layers, rows, F)

    long matrix() const { return long(atoms) * atoms * width; }
    long half() const { return long(atoms) * (atoms + 1) / 2 * width; }
    long table_size() const { return long(modules) * layers * rows * width; }
    int units() const { return layers * structures; }
    float* inner(float* all, int unit, int j) const { return all + (long(j) * units() + unit) * matrix(); }
    float* folded(float* all, int unit, int j) const { return all + (long(j) * units() + unit) * half(); }
    const float* nodes(int unit, int j) const {
        return table + (long(j) * layers + unit / structures) * rows * width;
    }
    long pairs(int unit) const { return long(unit % structures) * atoms * atoms; }
    float* square(float* all, int unit) const { return all + long(unit) * atoms * atoms; }
};

// ---- from distances to overlaps and back ----------------------------------------------------------------

template <int L> static typename Lanes<L>::V interpolate(const float* nodes, const float* weights, int width) {
    auto sum = weights[0] * Lanes<L>::load(nodes);
    for (int t = 1; t < 6; ++t) sum += weights[t] * Lanes<L>::load(nodes + long(t) * width);
    return sum;
}

// A module of a unit; with `dot` also its derivative along a change of the distances.
template <int L> static void fill(const Stream& s, int unit, int j, float* x, float* dot, const float* d_dot) {
    const int n = s.atoms, width = s.width;
    for (int i = 0; i < n; ++i)
        for (int k = i; k < n; ++k) {
            const long pair = s.pairs(unit) + i * n + k;
            const long there = (long(i) * n + k) * width, back = (long(k) * n + i) * width;
            const float* nodes = s.nodes(unit, j) + 3L * s.cell[pair] * width;
            auto both_ways = [&](float* out, int f, typename Lanes<L>::V v) {
                Lanes<L>::store(out + there + f, v);
                Lanes<L>::store(out + back + f, v);
            };
            for (int f = 0; f < width; f += L) {
                both_ways(x, f, interpolate<L>(nodes + f, s.value + 6 * pair, width));
                if (dot) both_ways(dot, f, d_dot[pair] * interpolate<L>(nodes + f, s.slope + 6 * pair, width));
            }
        }
}

// (N, N, F) with both directions of a pair added.
template <int L> static void fold(const Stream& s, const float* whole, float* out) {
    const int n = s.atoms, width = s.width;
    for (int i = 0; i < n; ++i)
        for (int k = i; k < n; ++k, out += width)
            for (int f = 0; f < width; f += L) {
                auto v = Lanes<L>::load(whole + (long(i) * n + k) * width + f);
                if (i < k) v += Lanes<L>::load(whole + (long(k) * n + i) * width + f);
                Lanes<L>::store(out + f, v);
            }
}

// Σ over modules and channels of bar · dX/dd, (N, N).
template <int L> static void pull(const Stream& s, int unit) {
    float* out = s.square(s.pull, unit);
    const int n = s.atoms, width = s.width;
    long place = 0;
    for (int i = 0; i < n; ++i)
        for (int k = i; k < n; ++k, place += width) {
            const long pair = s.pairs(unit) + i * n + k;
            typename Lanes<L>::V sum = {};
            for (int j = 0; j < s.modules && i < k; ++j) {  // the distance of an atom to itself is constant
                const float* bars = s.folded(s.bars, unit, j) + place;
                const float* nodes = s.nodes(unit, j) + 3L * s.cell[pair] * width;
                for (int f = 0; f < width; f += L)
                    sum += Lanes<L>::load(bars + f) * interpolate<L>(nodes + f, s.slope + 6 * pair, width);
            }
            out[i * n + k] = Lanes<L>::sum(sum);
        }
}

// Contribution of a unit to the gradient with respect to the table of a module: Σ over pairs of
// hat · value weights − bar · d(weights)/dt, added to the six rows of nodes around each pair.
template <int L> static void collect(const Stream& s, int unit, int j, const float* hats, const float* d_dot, float* sums) {
    using T = Lanes<L>;
    const int n = s.atoms, width = s.width;
    const float* bars = s.folded(s.bars, unit, j);
    float* table = sums + (long(j) * s.layers + unit / s.structures) * s.rows * width;
    for (int i = 0; i < n; ++i)
        for (int k = i; k < n; ++k, bars += width) {
            const long pair = s.pairs(unit) + i * n + k;
            const float *value = s.value + 6 * pair, *slope = s.slope + 6 * pair;
            for (int f = 0; f < width; f += L) {
                auto hat = T::load(hats + (long(i) * n + k) * width + f);
                if (i < k) hat += T::load(hats + (long(k) * n + i) * width + f);
                const auto bar = -d_dot[pair] * T::load(bars + f);
                float* row = table + 3L * s.cell[pair] * width + f;
                for (int t = 0; t < 6; ++t, row += width)
                    T::store(row, T::load(row) + value[t] * hat + slope[t] * bar);
            }
        }
}

// ---- the four sweeps ------------------------------------------------------------------------------------

// One unit of the stream. Modules count from 0; J = last + 1.
template <int L> struct Unit {
    const Stream& s;
    const int unit, n = s.atoms, last = s.modules - 1;
    const long w = long(n) * s.width;
    float *alpha = s.square(s.alpha, unit), *alpha_bar = s.square(s.alpha_bar, unit);
    float *alpha_dot = s.square(s.alpha_dot, unit), *alpha_hat = s.square(s.alpha_hat, unit);

    const Rows straight = {n, n, w, n, 1, w, w}, turned = {n, n, w, 1, n, w, w};

    float* own(int place) const { return own_space(s.space) + place * s.matrix(); }
    float* x(int j) const { return own(j); }
    float* dot(int j) const { return own(s.modules + j); }
    float* spare(int j) const { return own(2 * s.modules + j); }
    // X_0 … X_j, its derivative, and its adjoint.
    float* prefix(int j) const { return j ? s.inner(s.prefix, unit, j - 1) : x(0); }
    float* prefix_dot(int j) const { return j ? s.inner(s.prefix_dots, unit, j - 1) : dot(0); }
    float* suffix(int j) const { return j ? s.inner(s.suffix, unit, j - 1) : spare(0); }
    void copy(float* to, const float* from) const { std::memcpy(to, from, s.matrix() * sizeof(float)); }
    void overlaps(const float* d_dot = nullptr) const {
        for (int j = 0; j <= last; ++j) fill<L>(s, unit, j, x(j), d_dot ? dot(j) : nullptr, d_dot);
    }

    void attention() const {
        overlaps();
        if (last == 0) return copy(alpha, x(0));
        for (int j = 1; j < last; ++j) channels<L>(prefix(j), false, n, s.width, {prefix(j - 1), x(j)});
        contract<L>(alpha, n, w, w, {prefix(last - 1), x(last)});
    }

    void adjoints() const {
        auto keep = [&](int j, const float* bar) { fold<L>(s, bar, s.folded(s.bars, unit, j)); };
        if (last == 0) return keep(0, alpha_bar);
        overlaps();
        float* bar = spare(1);
        rows<L>(turned, bar, {alpha_bar, prefix(last - 1)});
        keep(last, bar);
        rows<L>(straight, suffix(last - 1), {alpha_bar, x(last)});
        for (int j = last - 1; j > 0; --j) {
            channels<L>(bar, true, n, s.width, {suffix(j), prefix(j - 1)});
            keep(j, bar);
            channels<L>(suffix(j - 1), false, n, s.width, {suffix(j), x(j)});
        }
        keep(0, suffix(0));
    }

    void attention_dot(const float* d_dot) const {
        overlaps(d_dot);
        if (last == 0) return copy(alpha_dot, dot(0));
        for (int j = 1; j < last; ++j)
            channels<L>(prefix_dot(j), false, n, s.width, {prefix_dot(j - 1), x(j)}, {prefix(j - 1), dot(j)});
        contract<L>(alpha_dot, n, w, w, {prefix_dot(last - 1), x(last)}, {prefix(last - 1), dot(last)});
    }

    // The hats are not stored: their contribution to the gradient is added to `sums`, of the table's shape.
    void hats(const float* d_dot, float* sums) const {
        auto keep = [&](int j, const float* hat) { collect<L>(s, unit, j, hat, d_dot, sums); };
        if (last == 0) return keep(0, alpha_hat);
        overlaps(d_dot);
        float *suffix_hat = spare(0), *next = spare(1), *hat = spare(2);
        rows<L>(turned, hat, {alpha_hat, prefix(last - 1)}, {alpha_bar, prefix_dot(last - 1)}, -1);
        keep(last, hat);
        rows<L>(straight, suffix_hat, {alpha_hat, x(last)}, {alpha_bar, dot(last)}, -1);
        for (int j = last - 1; j > 0; --j) {
            channels<L>(hat, true, n, s.width, {suffix_hat, prefix(j - 1)}, {suffix(j), prefix_dot(j - 1)}, -1);
            keep(j, hat);
            channels<L>(next, false, n, s.width, {suffix_hat, x(j)}, {suffix(j), dot(j)}, -1);
            std::swap(suffix_hat, next);
        }
        keep(0, suffix_hat);
    }
};
