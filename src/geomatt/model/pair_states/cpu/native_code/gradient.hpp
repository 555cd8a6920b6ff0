// The gradient with respect to the weights, from what the sweeps over all structures have left.

#pragma once

#include <functional>

#include "structure.hpp"

// Rows of adjoints and of states whose products are added up.
struct Rows { long count; const float* adjoint; long adjoint_row; const float* state; long state_row; };

class Gradient {
    const Program& p;
    const std::vector<Structure>& all;
    const int c = p.channels, last = p.rounds - 1;
    std::vector<std::function<void()>> tasks;  // each makes numbers of its own

    // Columns of a task, and rows at a time: so much that what is read from memory is used while it is near.
    static constexpr int BROADEST = 128, CHUNK = 128;

    // out (rows, columns) = Σ adjointᵀ state over structures and slots; of(structure, slot) are the rows.
    template <class Of> void weights(float* out, int rows, int columns, Of of) {
        for (int at = 0; at < columns; at += BROADEST)
            tasks.push_back([this, out, rows, columns, of, at] { part(out, rows, columns, of, at); });
    }

    template <class Of> void part(float* out, int rows, int columns, Of of, int at) const {
        const int width = std::min(BROADEST, columns - at), panels = (width + PANEL - 1) / PANEL;
        const long tall = long(rows) * PANEL, deep = long(CHUNK) * PANEL;
        float found[TALL * PANEL], *total = own_space(panels * (tall + deep)), *packed = total + panels * tall;
        std::fill_n(total, panels * tall, 0.0f);
        for (const Structure& one : all)
            for (int slot = 0; slot < 2; ++slot) {
                const Rows x = of(one, slot);
                for (long start = 0; start < x.count; start += CHUNK) {
                    const int length = std::min(long(CHUNK), x.count - start);
                    pack(packed, x.state + start * x.state_row + at, length, width, x.state_row, 1);
                    for (int k = 0; k < panels; ++k)
                        evenly(rows, TALL, [&](int r, int high) {
                            const float* a = x.adjoint + start * x.adjoint_row + r;
                            block<true>(high, length, a, x.adjoint_row, packed + long(k) * length * PANEL, found);
                            float* to = total + k * tall + r * PANEL;
                            for (int f = 0; f < high * PANEL; f += WIDE)
                                Wide::store(to + f, Wide::load(to + f) + Wide::load(found + f));
                        });
                }
            }
        for (int r = 0; r < rows; ++r)
            for (int f = 0; f < width; ++f)
                out[long(r) * columns + at + f] = total[f / PANEL * tall + r * PANEL + f % PANEL];
    }

    // out (columns) = Σ factor · row; of(structure, row) is where a row begins, and its factor.
    template <class Count, class Of> void rows_sum(float* out, int columns, Count count, Of of) {
        tasks.push_back([this, out, columns, count, of] {
            std::fill_n(out, columns, 0.0f);
            for (const Structure& one : all)
                for (long r = 0; r < count(one); ++r) {
                    const auto [row, factor] = of(one, r);
                    for (int f = 0; f < columns; f += WIDE)
                        Wide::store(out + f, Wide::load(out + f) + factor * Wide::load(row + f));
                }
        });
    }

    using Row = std::pair<const float*, float>;

    void rounds(const Weights& to) {
        const long square = long(c) * c;
        auto pairs = [](const Structure& one) { return one.q; };
        for (int t = 0; t <= last; ++t) {
            auto slots = [this, t](Series Adjoints::*adjoint, Series States::*state, int a, int row) {
                return [this, t, adjoint, state, a, row](const Structure& one, int slot) {
                    return Rows{one.q, ((slot ? one.n_ : one.hat).*adjoint)[t + a], row,
                                ((slot ? one.dot : one.value).*state)[t], 2L * c};
                };
            };
            weights(to.w1 + 4 * square * t, 2 * c, 2 * c, slots(&Adjoints::h, &States::xp, 0, 2 * c));
            weights(to.ab + 2 * square * t, 2 * c, c, slots(&Adjoints::ab, &States::xp, 0, 2 * c));
            rows_sum(to.b1 + 2L * c * t, 2 * c, pairs,
                     [this, t](const Structure& one, long r) { return Row(one.hat.h[t] + 2L * c * r, 1.0f); });
            if (t == last) continue;
            weights(to.w2 + 2 * square * t, c, 2 * c, slots(&Adjoints::x, &States::u, 1, c));
            rows_sum(to.b2 + long(c) * t, c, [](const Structure& one) { return one.ends() ? 2 * one.q : one.q; },
                     [this, t](const Structure& one, long r) {
                         return r < one.q ? Row(one.hat.x[t + 1] + c * r, one.envelope[r])
                                          : Row(one.n_.x[t + 1] + c * (r - one.q), one.envelope_dot[r - one.q]);
                     });
        }
        // W₂ and b₂ of the last round act on sums: two rows for each atom, its own pair and the others.
        weights(to.w2 + 2 * square * last, c, 2 * c, [this](const Structure& one, int slot) {
            return Rows{2L * one.n, (slot ? one.n_ : one.hat).r, c, (slot ? one.dot : one.value).sums, 2L * c};
        });
        rows_sum(to.b2 + long(c) * last, c, [](const Structure& one) { return (one.ends() ? 3L : 2L) * one.n; },
                 [this](const Structure& one, long r) {
                     if (r >= 2 * one.n) {  // the envelope moves, too: for the others of an atom
                         const int i = int(r - 2 * one.n);
                         return Row(one.n_.r + c * (2L * i + 1), one.others(one.envelope_dot, i));
                     }
                     return Row(one.hat.r + c * r, r % 2 ? one.others(one.envelope, int(r / 2)) : 1.0f);
                 });
    }

    void readout(const Weights& to) {
        auto atoms = [](const Structure& one) { return long(one.n); };
        weights(to.v1, 2 * c, 2 * c, [this](const Structure& one, int slot) {
            return Rows{one.n, (slot ? one.n_ : one.hat).q1, 2L * c, (slot ? one.dot : one.value).r, 2L * c};
        });
        weights(to.v2, c, 2 * c, [this](const Structure& one, int slot) {
            return Rows{one.n, (slot ? one.n_ : one.hat).q2, c, (slot ? one.dot : one.value).a1, 2L * c};
        });
        rows_sum(to.c1, 2 * c, atoms,
                 [this](const Structure& one, long r) { return Row(one.hat.q1 + 2L * c * r, 1.0f); });
        rows_sum(to.c2, c, atoms, [this](const Structure& one, long r) { return Row(one.hat.q2 + c * r, 1.0f); });
        rows_sum(to.v3, c, [](const Structure& one) { return 2L * one.n; }, [this](const Structure& one, long r) {
            return r % 2 ? Row(one.dot.a2 + c * (r / 2), -1.0f) : Row(one.value.a2 + c * (r / 2), p.by_energy[one.b]);
        });
        tasks.push_back([this, to] {
            *to.c3 = 0;
            for (const Structure& one : all) *to.c3 += p.by_energy[one.b] * one.n;
        });
    }

    void initial(const Weights& to) {
        float* tables[] = {to.g, to.h, to.e};
        for (int which = 0; which < 3; ++which)
            tasks.push_back([this, which, out = tables[which]] {
                const long table = long(p.elements) * c;
                std::fill_n(out, table, 0.0f);
                for (const Structure& one : all)
                    for (long f = 0; one.n && f < table; f += WIDE)
                        Wide::store(out + f, Wide::load(out + f) + Wide::load(one.by_element + which * table + f));
            });
        weights(to.k, c, p.functions, [this](const Structure& one, int slot) {
            return Rows{one.q, (slot ? one.n_ : one.hat).x[0], c, slot ? one.phi_dot : one.phi, one.l};
        });
    }

public:
    Gradient(const Program& p, const std::vector<Structure>& all) : p(p), all(all) {
        rounds(*p.by_weights);
        readout(*p.by_weights);
        initial(*p.by_weights);
    }
    void run() const {
        parallel(p.threads, int(tasks.size()), [&](int k) { tasks[k](); });
    }
};
