// The arrays of one structure, and the tiles in which its pairs are gone through.
//
// Padding is left out: the n real atoms have q = n² pairs (i, j). States are (q, channels); where the next sweep
// takes them for products over atoms (A, B, and adjoints of P), they are in blocks of channels
// (channels / WIDE, q, WIDE). What belongs to atoms is (n, features).

#pragma once

#include "program.hpp"

// An array for each round, or one for all.
struct Series {
    float* base;
    long step;
    float* operator[](int t) const { return base + t * step; }
};

// Values, or tangents. Of pairs: X beside P, A beside B, H and U; of atoms: those of the readout, and the sums of
// U from which W₂ of the last round makes a part of R.
struct States {
    Series xp, ab, h, u;
    float *r, *sums, *q1, *a1, *q2, *a2;
};

// Adjoints n, or hats.
struct Adjoints {
    Series x, p, h, ab;
    float *q2, *a1, *q1, *r, *us;  // us: of the sums of U
};

struct Space {
    const Program& p;
    const Panels panels;
    const Weights& w;
    const int b, c = p.channels, l = p.basis(), last = p.rounds - 1;
    int n = 0;             // real atoms
    long q = 0, size = 0;  // pairs, and numbers in all arrays
    float s = 0;           // the factor on sums over atoms
    int32_t *atom, *kind;  // of real atoms: which they are, and the row of their element, −1 if it is unknown
    float* none;           // zeros, the embedding of an unknown element
    float *direction, *decayed, *phi, *phi_dot, *n_d;  // of pairs: from j to i, exp(−d), functions, −∂E/∂d
    float *envelope, *envelope_slope, *envelope_dot;   // of pairs: u, du/dd and u̇; one and zeros without a radius
    float* n_envelope;     // −∂E/∂u
    float* by_element;     // the structure's part of the gradient with respect to g, h and e
    States value, dot;
    Adjoints n_, hat;
    Series n_u;

    Space(const Program& p, int b, float* base) : p(p), panels(p), w(*p.weights), b(b) {
        if (base) for (int i = 0; i < p.atoms; ++i) n += numbers()[i] > 0;
        else n = p.atoms;
        q = long(n) * n;
        s = p.scale > 0 ? p.scale : 1 / std::sqrt(float(std::max(n, 1)));
        auto take = [&](long count) {
            float* at = base ? base + size : nullptr;
            size += (count + 15) / 16 * 16;
            return at;
        };
        auto series = [&](long count, int times) {
            Series made = {take(0), times > 1 ? (count + 15) / 16 * 16 : 0};
            for (int t = 0; t < times; ++t) take(count);
            return made;
        };
        // `kept`: one for all rounds will do without a gradient. `only`: none is needed.
        const int all = p.rounds, kept = p.keep ? all : 1, only = p.keep ? all : 0, once = p.keep ? 1 : 0;
        const long pairs = q * c, atoms = long(n) * c;
        atom = reinterpret_cast<int32_t*>(take(n)), kind = reinterpret_cast<int32_t*>(take(n));
        none = take(c), direction = take(3 * q), decayed = take(q), n_d = take(q);
        envelope = take(q), envelope_slope = take(q), n_envelope = take(q), envelope_dot = take(once * q);
        phi = take(q * l), phi_dot = take(once * q * l), by_element = take(once * 3L * p.elements * c);
        auto states = [&](States& x) {
            x.xp = series(2 * pairs, kept), x.ab = series(2 * pairs, all), x.h = series(2 * pairs, all);
            x.u = series(2 * pairs, only), x.r = take(2 * atoms), x.sums = take(4 * atoms);
            x.q1 = take(2 * atoms), x.a1 = take(2 * atoms), x.q2 = take(atoms), x.a2 = take(atoms);
        };
        auto adjoints = [&](Adjoints& x) {
            x.x = series(pairs, kept), x.p = series(pairs, p.keep ? all : 2);
            x.h = series(2 * pairs, only), x.ab = series(2 * pairs, only);
            x.q2 = take(atoms), x.a1 = take(2 * atoms), x.q1 = take(2 * atoms);
            x.r = take(2 * atoms), x.us = take(4 * atoms);
        };
        states(value), adjoints(n_);
        if (!p.keep) return;
        states(dot), adjoints(hat);
        n_u = series(2 * pairs, all);
    }

    bool ends() const { return p.radius > 0; }
    // The sum over the others of atom i of what belongs to pairs, scaled.
    float others(const float* of_pairs, int i) const {
        float total = 0;
        for (int j = 0; j < n; ++j) if (j != i) total += of_pairs[long(i) * n + j];
        return s * total;
    }
    const int64_t* numbers() const { return p.numbers + long(b) * p.atoms; }
    const float* row(const float* table, int i) const { return kind[i] < 0 ? none : table + long(kind[i]) * c; }
    // Where the numbers f … of a pair are in an array of blocks.
    long in_block(long pair, int f) const { return (f / WIDE * q + pair) * WIDE; }
    // Adjoints of P; if they are not kept, those of the round before must not overwrite these.
    float* of_p(const Adjoints& x, int t) const { return x.p[p.keep ? t : t % 2]; }

    // ---- tiles ------------------------------------------------------------------------------------------

    struct Tile { int i, rows; long first; int pairs; };

    // As many for each thread, where threads share a structure; results do not depend on it.
    int tiles() const {
        const int share = p.structures < p.threads ? p.threads : 1, rows = (n + high() - 1) / high();
        return std::min(n, (rows + share - 1) / share * share);
    }
    int high() const { return std::max(1, 42 / n); }  // rows of a tile: some 42 pairs keep registers and cache full
    Tile tile(int k) const {
        const int i = long(n) * k / tiles(), end = long(n) * (k + 1) / tiles();
        return {i, end - i, long(i) * n, (end - i) * n};
    }
    // A thread's own arrays for what need not be kept of a tile.
    float* spare(int k) const { return own_space(2 * spare_size()) + k * spare_size(); }
    long spare_size() const { return long(high()) * n * std::max(2 * c, l); }

    // For all pairs of a tile: work(i, j, pair).
    template <class F> void each(const Tile& t, F work) const {
        for (int i = t.i; i < t.i + t.rows; ++i)
            for (int j = 0; j < n; ++j) work(i, j, long(i) * n + j);
    }
};
