// The sweeps of `dense/program.py` over one structure: values and tangents up, adjoints and hats down.
//
// Between the products over atoms all that happens to a pair concerns it alone, so a tile of pairs goes through a
// whole round while it is in the cache.
//
// Every number is computed by one thread in one order: results do not depend on how many threads there are.

#pragma once

#include "space.hpp"

struct Structure : Space {
    using Space::Space;

    // ---- values, and with DOT their tangents ----------------------------------------------------------------

    void begin() const {
        std::fill_n(none, c, 0.0f);
        for (int i = 0, k = 0; i < p.atoms; ++i) {
            if (numbers()[i] <= 0) continue;
            atom[k] = i, kind[k] = -1;
            for (int e = 0; e < p.elements; ++e) if (numbers()[i] == p.known[e]) kind[k] = e;
            ++k;
        }
    }

    template <bool DOT> void initial(const Tile& t) const {
        DOT ? rates(t) : geometry(t);
        const float* functions = DOT ? phi_dot : phi;
        const States& to = DOT ? dot : value;
        transform(t.pairs, l, c, functions + t.first * l, l, panels.k(), [&](int r, int f, V v) {
            const int i = t.i + r / n, j = r % n;
            if (i != j) v *= Wide::load(row(w.g, i) + f) * Wide::load(row(w.h, j) + f);
            else v = DOT ? V{} : Wide::load(row(w.e, i) + f);
            Wide::store(to.xp[0] + (t.first + r) * 2 * c + f, v);
        });
        factors(t, to, 0);
    }

    // Directions from j to i, exp(−d), and φ.
    void geometry(const Tile& t) const {
        const float* r = p.positions + 3L * b * p.atoms;
        each(t, [&](int i, int j, long pair) {
            float *e = direction + 3 * pair, squared = 0;
            for (int x = 0; x < 3; ++x) {
                e[x] = r[3 * atom[i] + x] - r[3 * atom[j] + x];
                squared += e[x] * e[x];
            }
            const float d = std::sqrt(squared), inverse = squared != 0 ? 1 / d : 0;
            for (int x = 0; x < 3; ++x) e[x] *= inverse;
            decayed[pair] = std::exp(-d / p.decay);
            envelope[pair] = 1, envelope_slope[pair] = 0, n_envelope[pair] = 0;
            if (ends() && i != j) end(d, envelope[pair], envelope_slope[pair]);
            each_function(pair, [&](float* to, V offset) {
                const V exponent = p.sharpness * offset * offset, limit = V{} + 40.0f;
                const V function = exponent < limit ? exponential(-exponent) : V{};
                Wide::store(to, i != j ? envelope[pair] * function : V{});
            });
        });
    }

    // u and du/dd, see envelope.py.
    void end(float d, float& value, float& slope) const {
        const float x = std::min(d / p.radius, 1.0f), rest = 1 - x;
        value = rest * rest * rest * (1 + x * (3 + x * (6 + x * (10 + x * (15 + x * 21)))));
        slope = -168 / p.radius * x * x * x * x * x * rest * rest;
    }

    // φ̇ along ∂loss/∂F.
    void rates(const Tile& t) const {
        const float* u = p.by_forces + 3L * b * p.atoms;
        each(t, [&](int i, int j, long pair) {
            float along = 0;
            for (int x = 0; x < 3; ++x)
                along += (u[3 * atom[i] + x] - u[3 * atom[j] + x]) * direction[3 * pair + x];
            envelope_dot[pair] = along * envelope_slope[pair];
            slopes(pair, along, phi_dot + pair * l);
        });
    }

    // For every vector of functions: work(where φ is, exp(−d) − μ). Beyond the last function μ is far away.
    template <class F> void each_function(long pair, F work) const {
        for (int f = 0; f < l; f += WIDE) {
            V centre = V{} + 1e3f;
            std::memcpy(&centre, p.mu + f, std::min(WIDE, p.functions - f) * sizeof(float));
            work(phi + pair * l + f, decayed[pair] - centre);
        }
    }

    // d(u φ)/dd, times a factor. What is kept of φ has u in it.
    void slopes(long pair, float factor, float* to) const {
        const float scale = 2 * p.sharpness / p.decay * decayed[pair] * factor;
        const float ending = envelope[pair] > 0 ? factor * envelope_slope[pair] / envelope[pair] : 0;
        each_function(pair, [&](const float* function, V offset) {
            Wide::store(to + (function - phi - pair * l), (scale * offset + ending) * Wide::load(function));
        });
    }

    // A and B before round t.
    void factors(const Tile& tile, const States& x, int t) const {
        transform(tile.pairs, c, 2 * c, x.xp[kept(t)] + tile.first * 2 * c, 2 * c, panels.up_ab(t),
                  [&](int r, int f, V v) { Wide::store(x.ab[t] + in_block(tile.first + r, f), v); });
    }
    int kept(int t) const { return p.keep ? t : 0; }

    template <bool DOT> void round(int t, const Tile& tile) const {
        const States& to = DOT ? dot : value;
        float *xp = to.xp[kept(t)] + tile.first * 2 * c, *h = to.h[t] + tile.first * 2 * c;
        float* u = p.keep ? to.u[t] + tile.first * 2 * c : spare(0);
        const Strides strides = {long(n) * WIDE, WIDE, WIDE, long(n) * WIDE};
        for (int f = 0; f < c; f += WIDE) {
            auto a = [&](const States& x) { return x.ab[t] + in_block(tile.first, f); };
            auto b = [&](const States& x) { return x.ab[t] + in_block(0, c + f); };
            const Factors two = DOT ? Factors{a(value), b(dot)} : Factors{};
            over_atoms(tile.rows, n, n, strides, {a(to), b(value)}, two, [&](int i, int j, V v) {
                Wide::store(xp + (long(i) * n + j) * 2 * c + c + f, s * v);
            });
        }
        const float *b1 = w.b1 + 2L * c * t, *b2 = w.b2 + long(c) * t;
        transform(tile.pairs, 2 * c, 2 * c, xp, 2 * c, panels.up_h(t), [&](int r, int f, V v) {
            const long at = 2L * c * r + f;
            if (!DOT) v = saturated(of_round(t) + f, v + Wide::load(b1 + f));
            Wide::store(h + at, v);
            const float *before = value.h[t] + tile.first * 2 * c + at, factor = envelope[tile.first + r];
            V active = factor * (DOT ? v * silu_slope(Wide::load(before)) : silu(v));
            if (DOT && ends()) active += envelope_dot[tile.first + r] * silu(Wide::load(before));
            Wide::store(u + at, active);
        });
        if (t == last) return gather<DOT>(tile, xp, u);
        float* after = to.xp[kept(t + 1)] + tile.first * 2 * c;
        transform(tile.pairs, 2 * c, c, u, 2 * c, panels.up_x(t), [&](int r, int f, V v) {
            v += Wide::load(xp + 2L * c * r + f);
            if (!DOT || ends()) v += (DOT ? envelope_dot : envelope)[tile.first + r] * Wide::load(b2 + f);
            Wide::store(after + 2L * c * r + f, v);
        });
        factors(tile, to, t + 1);
    }

    // c(h) of unit and the next ones, and c' where c has the value h, see ceiling.py.
    V saturated(long unit, V h) const {
        if (!p.ceiling) return h;
        const V top = Wide::load(p.ceiling + unit);
        if (!Wide::any_above(h, top)) return h;
        const V room = Wide::load(p.ceiling + p.units() + unit);
        return h > top ? top + room * (2.0f * sigmoid(2.0f * (h - top) / room) - 1.0f) : h;
    }
    V saturation_slope(long unit, V h) const {
        if (!p.ceiling) return V{} + 1.0f;
        const V part = (h - Wide::load(p.ceiling + unit)) / Wide::load(p.ceiling + p.units() + unit);
        return part > 0.0f ? 1.0f - part * part : V{} + 1.0f;
    }

    long of_round(int t) const { return 2L * c * t; }  // units before those of a round, and of the readout
    long of_first() const { return of_round(p.rounds); }
    long of_second() const { return of_first() + 2 * c; }

    // Own pair and scaled sum over the others of X + b₂ and U, before W₂ acts on the latter.
    template <bool DOT> void gather(const Tile& t, const float* x, const float* u) const {
        const States& to = DOT ? dot : value;
        const float* b2 = w.b2 + long(c) * last;
        for (int i = t.i; i < t.i + t.rows; ++i) {
            const float rest = DOT && !ends() ? 0 : others(DOT ? envelope_dot : envelope, i);
            auto sums = [&](const float* from, float* out, int width, const float* bias) {
                from += long(i - t.i) * n * 2 * c;
                for (int f = 0; f < width; f += WIDE) {
                    V total = {};
                    for (int j = 0; j < n; ++j) if (j != i) total += Wide::load(from + 2L * c * j + f);
                    V own = Wide::load(from + 2L * c * i + f);
                    total *= s;
                    if (bias) {
                        if (!DOT) own += Wide::load(bias + f);
                        total += rest * Wide::load(bias + f);
                    }
                    Wide::store(out + f, own);
                    Wide::store(out + width + f, total);
                }
            };
            sums(x, to.r + 2L * c * i, c, DOT && !ends() ? nullptr : b2);
            sums(u, to.sums + 4L * c * i, 2 * c, nullptr);
        }
    }

    // ---- readout, for some atoms --------------------------------------------------------------------------

    static constexpr int TOGETHER = TALL;
    int atom_blocks() const { return (n + TOGETHER - 1) / TOGETHER; }

    // R from its sums, then work with the first layer done(i, f, v) and the second.
    template <class One, class Two> void layers(const States& x, int i, int count, One one, Two two) const {
        float* r = x.r + 2L * c * i;
        transform(2 * count, 2 * c, c, x.sums + 4L * c * i, 2 * c, panels.up_x(last), [&](int k, int f, V v) {
            Wide::store(r + long(c) * k + f, Wide::load(r + long(c) * k + f) + v);
        });
        transform(count, 2 * c, 2 * c, r, 2 * c, panels.up_1(),
                  [&](int k, int f, V v) { one(2L * c * (i + k) + f, f, v); });
        transform(count, 2 * c, c, x.a1 + 2L * c * i, 2 * c, panels.up_2(),
                  [&](int k, int f, V v) { two(long(c) * (i + k) + f, f, v); });
    }
    // Back from the adjoint of Q₂ to those of R and of the sums of U.
    template <class One> void layers_down(const Adjoints& x, int i, int count, One one) const {
        transform(count, c, 2 * c, x.q2 + long(c) * i, c, panels.down_2(), [&](int k, int f, V v) {
            const long at = 2L * c * (i + k) + f;
            Wide::store(x.a1 + at, v);
            Wide::store(x.q1 + at, one(at, f, v));
        });
        transform(count, 2 * c, 2 * c, x.q1 + 2L * c * i, 2 * c, panels.down_1(),
                  [&](int k, int f, V v) { Wide::store(x.r + 2L * c * (i + k) + f, v); });
        transform(2 * count, c, 2 * c, x.r + 2L * c * i, c, panels.down_u(last),
                  [&](int k, int f, V v) { Wide::store(x.us + 4L * c * i + 2L * c * k + f, v); });
    }

    void energies(int i, int count) const {
        const States& x = value;
        layers(x, i, count,
            [&](long at, int f, V v) {
                v = saturated(of_first() + f, v + Wide::load(w.c1 + f));
                Wide::store(x.q1 + at, v);
                Wide::store(x.a1 + at, silu(v));
            },
            [&](long at, int f, V v) {
                v = saturated(of_second() + f, v + Wide::load(w.c2 + f));
                Wide::store(x.q2 + at, v);
                Wide::store(x.a2 + at, silu(v));
                const V slope = silu_slope(v) * saturation_slope(of_second() + f, v);
                Wide::store(n_.q2 + at, -slope * Wide::load(w.v3 + f));
            });
        for (int k = i; k < i + count; ++k) {
            V total = {};
            for (int f = 0; f < c; f += WIDE) total += Wide::load(x.a2 + long(c) * k + f) * Wide::load(w.v3 + f);
            p.atomic[long(b) * p.atoms + atom[k]] = Wide::sum(total) + *w.c3;
        }
        if (!p.forces) return;
        layers_down(n_, i, count, [&](long at, int f, V v) {
            const V before = Wide::load(x.q1 + at);
            return v * silu_slope(before) * saturation_slope(of_first() + f, before);
        });
    }

    void readout_hats(int i, int count) const {
        const States& x = value;
        const float by_energy = p.by_energy[b];
        layers(dot, i, count,
            [&](long at, int, V v) {
                Wide::store(dot.q1 + at, v);
                Wide::store(dot.a1 + at, v * silu_slope(Wide::load(x.q1 + at)));
            },
            [&](long at, int f, V v) {
                const V before = Wide::load(x.q2 + at), slope = silu_slope(before);
                Wide::store(dot.a2 + at, v * slope);
                Wide::store(hat.q2 + at,
                            Wide::load(w.v3 + f) * (by_energy * slope - silu_curvature(before) * v));
            });
        layers_down(hat, i, count, [&](long at, int, V v) {
            return bent(x.q1 + at, dot.q1 + at, v, Wide::load(n_.a1 + at));
        });
    }

    // hat · silu'(x) + n · silu''(x) · ẋ
    static V bent(const float* x, const float* x_dot, V hat, V n) {
        const V before = Wide::load(x);
        return hat * silu_slope(before) + n * silu_curvature(before) * Wide::load(x_dot);
    }

    // ---- adjoints, and with HAT hats ------------------------------------------------------------------------

    // What the readout says of a pair (i, j), from values of atoms (n, 2, width).
    V of_pair(const float* atoms, int width, int i, int j, int f) const {
        const V v = Wide::load(atoms + 2L * width * i + (i == j ? 0 : width) + f);
        return i == j ? v : s * v;
    }

    // The adjoint of H from that of U, at numbers `at` of a pair in round t; `f` is the first unit.
    template <bool HAT> V through_silu(int t, long pair, long at, int f, V v, V n) const {
        const float factor = envelope[pair];
        if (HAT && ends()) v = factor * v + envelope_dot[pair] * n, n = factor * n;
        if (HAT) return bent(value.h[t] + at, dot.h[t] + at, v, n);
        if (ends()) n_envelope[pair] += Wide::sum(v * silu(Wide::load(value.h[t] + at)));
        const V h = Wide::load(value.h[t] + at);
        return factor * v * silu_slope(h) * saturation_slope(of_round(t) + f, h);
    }

    // What b₂ of round t adds to −∂E/∂u of a pair; `after` is the adjoint of X after the round.
    template <class After> void by_bias(int t, long pair, After after) const {
        if (!ends()) return;
        for (int f = 0; f < c; f += WIDE)
            n_envelope[pair] += Wide::sum(after(f) * Wide::load(w.b2 + long(c) * t + f));
    }

    template <bool HAT> void down_first(const Tile& t) const {
        const Adjoints& to = HAT ? hat : n_;
        float* h = p.keep ? to.h[last] + t.first * 2 * c : spare(0);
        each(t, [&](int i, int j, long pair) {
            for (int f = 0; f < 2 * c; f += WIDE) {
                const V v = of_pair(to.us, 2 * c, i, j, f), n = HAT ? of_pair(n_.us, 2 * c, i, j, f) : V{};
                const V by_h = through_silu<HAT>(last, pair, pair * 2 * c + f, f, v, n);
                Wide::store(h + (pair - t.first) * 2 * c + f, by_h);
            }
            if (!HAT) by_bias(last, pair, [&](int f) { return of_pair(to.r, c, i, j, f); });
        });
        descend(to, last, t, h, [&](int r, int f) { return of_pair(to.r, c, t.i + r / n, r % n, f); });
    }

    // Adjoints of X and P from that of H; `after` is that of X after the round.
    template <class After>
    void descend(const Adjoints& to, int t, const Tile& tile, const float* h, After after) const {
        float *x = to.x[kept(t)] + tile.first * c, *product = of_p(to, t);
        transform(tile.pairs, 2 * c, 2 * c, h, 2 * c, panels.down_h(t), [&](int r, int f, V v) {
            if (f < c) Wide::store(x + long(c) * r + f, after(r, f) + v);
            else Wide::store(product + in_block(tile.first + r, f - c), s * v);
        });
    }

    template <bool HAT> void down(int t, const Tile& tile) const {
        const Adjoints& to = HAT ? hat : n_;
        float *x = to.x[kept(t)] + tile.first * c, *ab = p.keep ? to.ab[t] + tile.first * 2 * c : spare(0);
        const long line = long(n) * WIDE;
        for (int f = 0; f < c; f += WIDE) {
            auto of = [&](const Adjoints& x, long pair) { return of_p(x, t) + in_block(pair, f); };
            auto a = [&](const States& x) { return x.ab[t] + in_block(tile.i, f); };
            auto b = [&](const States& x) { return x.ab[t] + in_block(0, c + f); };
            auto store = [&](int half) {
                return [&, half](int i, int j, V v) {
                    Wide::store(ab + (long(i) * n + j) * 2 * c + half * c + f, v);
                };
            };
            const Factors by_a = {of(to, tile.first), b(value)}, by_b = {a(value), of(to, 0)};
            const Factors more_a = HAT ? Factors{of(n_, tile.first), b(dot)} : Factors{};
            const Factors more_b = HAT ? Factors{a(dot), of(n_, 0)} : Factors{};
            over_atoms(tile.rows, n, n, {line, WIDE, line, WIDE}, by_a, more_a, store(0));
            over_atoms(tile.rows, n, n, {WIDE, line, WIDE, line}, by_b, more_b, store(1));
        }
        transform(tile.pairs, 2 * c, c, ab, 2 * c, panels.down_ab(t), [&](int r, int f, V v) {
            Wide::store(x + long(c) * r + f, Wide::load(x + long(c) * r + f) + v);
        });
        if (t == 0) return HAT ? void() : by_distance(tile);
        float* h = p.keep ? to.h[t - 1] + tile.first * 2 * c : spare(1);
        float* kept_u = n_u[t - 1] + tile.first * 2 * c;
        for (int r = 0; !HAT && r < tile.pairs; ++r)
            by_bias(t - 1, tile.first + r, [&](int f) { return Wide::load(x + long(c) * r + f); });
        transform(tile.pairs, c, 2 * c, x, c, panels.down_u(t - 1), [&](int r, int f, V v) {
            const long at = 2L * c * r + f;
            if (!HAT && p.keep) Wide::store(kept_u + at, v);
            const V n = HAT ? Wide::load(kept_u + at) : V{};
            Wide::store(h + at, through_silu<HAT>(t - 1, tile.first + r, tile.first * 2 * c + at, f, v, n));
        });
        descend(to, t - 1, tile, h, [&](int r, int f) { return Wide::load(x + long(c) * r + f); });
    }

    // −∂E/∂d of the pairs of a tile.
    void by_distance(const Tile& t) const {
        float* slope = spare(0);
        each(t, [&](int, int, long pair) {
            slopes(pair, 1, slope + (pair - t.first) * l);
            n_d[pair] = n_envelope[pair] * envelope_slope[pair];
        });
        transform(t.pairs, l, c, slope, l, panels.k(), [&](int r, int f, V v) {
            const int i = t.i + r / n, j = r % n;
            v *= Wide::load(row(w.g, i) + f) * Wide::load(row(w.h, j) + f);
            n_d[t.first + r] += Wide::sum(v * Wide::load(n_.x[0] + (t.first + r) * c + f));
        });
    }

    void forces() const {
        for (int i = 0; i < n; ++i) {
            float* f = p.found + 3 * (long(b) * p.atoms + atom[i]);
            for (int j = 0; j < n; ++j)
                for (int x = 0; x < 3; ++x)
                    f[x] += (n_d[i * n + j] + n_d[j * n + i]) * direction[3 * (long(i) * n + j) + x];
        }
    }

    // ---- the initial states' part of the gradient ---------------------------------------------------------

    // ∂L/∂ of g, h and e (3, E, C). x̂ and n of the initial states become what K is multiplied with: ∘ g ∘ h.
    void by_elements() const {
        const long table = long(p.elements) * c;
        std::fill_n(by_element, 3 * table, 0.0f);
        auto add = [&](int which, int i, int f, V v) {
            if (kind[i] < 0) return;
            float* to = by_element + which * table + long(kind[i]) * c + f;
            Wide::store(to, Wide::load(to) + v);
        };
        for (int i = 0; i < n; ++i)
            for (int f = 0; f < c; f += WIDE) add(2, i, f, Wide::load(hat.x[0] + (long(i) * n + i) * c + f));
        for (const auto& [functions, x] : {std::pair(phi, hat.x[0]), std::pair(phi_dot, n_.x[0])})
            transform(q, l, c, functions, l, panels.k(), [&, x = x](int pair, int f, V v) {
                const int i = pair / n, j = pair % n;
                float* at = x + long(pair) * c + f;
                const V g = Wide::load(row(w.g, i) + f), h = Wide::load(row(w.h, j) + f), y = v * Wide::load(at);
                if (i != j) {
                    add(0, i, f, y * h);
                    add(1, j, f, y * g);
                }
                Wide::store(at, Wide::load(at) * g * h);
            });
    }

    // ---- all of it; run(count, work) does work(0 … count − 1) in any order -----------------------------------

    template <class Run> void evaluate(Run run) const {
        if (!n) return;
        begin();
        run(tiles(), [&](int k) { initial<false>(tile(k)); });
        for (int t = 0; t <= last; ++t) run(tiles(), [&](int k) { round<false>(t, tile(k)); });
        by_atoms(run, [&](int i, int count) { energies(i, count); });
        if (!p.forces) return;
        run(tiles(), [&](int k) { down_first<false>(tile(k)); });
        for (int t = last; t >= 0; --t) run(tiles(), [&](int k) { down<false>(t, tile(k)); });
        forces();
    }

    // After an evaluation of which all is kept.
    template <class Run> void differentiate(Run run) const {
        if (!n) return;
        run(tiles(), [&](int k) { initial<true>(tile(k)); });
        for (int t = 0; t <= last; ++t) run(tiles(), [&](int k) { round<true>(t, tile(k)); });
        by_atoms(run, [&](int i, int count) { readout_hats(i, count); });
        run(tiles(), [&](int k) { down_first<true>(tile(k)); });
        for (int t = last; t >= 0; --t) run(tiles(), [&](int k) { down<true>(t, tile(k)); });
        by_elements();
    }

    template <class Run, class F> void by_atoms(Run run, F work) const {
        run(atom_blocks(), [&](int k) {
            const int i = k * TOGETHER;
            work(i, std::min(TOGETHER, n - i));
        });
    }
};
