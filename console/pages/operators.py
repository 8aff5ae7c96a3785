"""Login, settings (me, system), operators, tokens. Views parse and show; services decide."""

import time
from typing import Any, Final

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_http_methods, require_POST

from console.accounts import sessions
from console.accounts.acts import ROLES, WORDS, Act
from console.accounts.models import OperatorToken, SecondFactor, System, User
from console.database import one_of
from console.operators import factors, services, throttle
from console.pages import flash, once
from console.pages.factors import wait_for_code
from console.pages.forms import WordsField, refusals_in
from console.pages.sudo import ConfirmForm, asks_password, confirmed, signs_on
from console.web.guards import sees
from console.web.middleware import actor_of, address_of
from signalbox.program.errors import LimitExceeded
from signalbox.program.words import counted

_MADE: Final = "new token"


class LoginForm(AuthenticationForm):
    """Name and password, throttled per account and per address."""

    def clean(self) -> dict[str, Any]:
        """Raises a validation error for wrong credentials and for too many attempts alike."""
        account = str(self.cleaned_data.get("username", ""))
        address = address_of(self.request) if self.request else ""
        wrong: list[forms.ValidationError] = []

        def is_right() -> bool:
            try:
                super(LoginForm, self).clean()
            except forms.ValidationError as error:
                wrong.append(error)
            return not wrong

        try:
            if not throttle.judge(account, address, is_right):
                raise wrong[0]
        except LimitExceeded as error:
            raise forms.ValidationError(error.public_message) from error
        return self.cleaned_data

    def confirm_login_allowed(self, user: Any) -> None:
        """Programs' accounts have tokens and no login."""
        super().confirm_login_allowed(user)
        if user.is_service:
            raise forms.ValidationError("This account is for programs; it cannot log in.")


class Login(LoginView):
    """The login page."""

    authentication_form = LoginForm
    redirect_authenticated_user = True

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        """The password is right; who has a second factor, or needs one, is asked for that before the login."""
        user = form.get_user()
        if factors.has(user) or factors.is_wanted(user):
            return wait_for_code(self.request, user, self.get_success_url())
        return super().form_valid(form)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With the words of the sign-on's button, where there is one."""
        button = settings.CONSOLE.oidc_button if settings.CONSOLE.oidc_issuer else ""
        return super().get_context_data(sign_on=button, **kwargs)


@require_http_methods(["GET", "POST"])
def confirm_password(request: HttpRequest) -> HttpResponse:
    """Ask for the password again before an act that a borrowed session must not do."""
    page = request.POST.get("next") or request.GET.get("next", "")
    if not url_has_allowed_host_and_scheme(page, {request.get_host()}, require_https=request.is_secure()):
        page = "/"
    if signs_on(request):
        if sessions.is_confirmed(request.session, time.time()):
            return redirect(page)
        return render(request, "registration/confirm_password.html", {"next": page})
    form = ConfirmForm(request.POST or None)
    if form.is_valid() and confirmed(request, form):
        return redirect(page)
    status = 400 if form.is_bound or request.method == "POST" else 200
    return render(request, "registration/confirm_password.html", {"form": form, "next": page}, status=status)


class PasswordForm(forms.Form):
    """A new password for oneself."""

    old = forms.CharField(label="Old password", widget=forms.PasswordInput)
    new = forms.CharField(label="New password", widget=forms.PasswordInput, help_text="At least 12 characters.")
    ends_tokens = forms.BooleanField(
        label="End my API tokens too",
        required=False,
        help_text="They do not depend on the password: programs go on with those that you leave.",
    )


class TokenForm(forms.Form):
    """A new token."""

    name = forms.CharField(max_length=100, help_text="What it is for.")
    days = forms.IntegerField(label="Days until it expires", initial=90, min_value=1, max_value=services.TOKEN_DAYS_MAX)


class UserForm(forms.Form):
    """A new operator."""

    username = forms.CharField(max_length=150)
    password = forms.CharField(widget=forms.PasswordInput, help_text="At least 12 characters.")
    role = forms.ChoiceField(choices=[(role, role) for role in ROLES])
    is_service = forms.BooleanField(label="For programs", required=False, help_text="Cannot log in; acts with tokens.")


class ModelsForm(forms.Form):
    """The models that an operator is limited to."""

    models = WordsField(
        required=False,
        help_text="Names, or beginnings of names like <code>team-*</code>, separated by spaces. Empty: all models.",
    )
    reason = forms.CharField(required=False, max_length=200, help_text="Goes into the audit.")


class ReadOnlyForm(forms.Form):
    """The read-only switch."""

    message = forms.CharField(max_length=200, help_text="Shown to everybody. Say why and until when.")


@sees(Act.SYSTEM_VIEW)
def settings_page(request: HttpRequest) -> HttpResponse:
    """Me and the system; after a token was made also its text, once."""
    if text := once.take(request, _MADE):
        response = _settings(request, new_token=text)
        once.shown(response)
        return response
    return _settings(request)


@require_POST
def change_password(request: HttpRequest) -> HttpResponse:
    """A new password for oneself; other sessions end."""
    form = PasswordForm(request.POST)
    if form.is_valid():
        with refusals_in(form):
            left = services.change_own_password(actor_of(request), **form.cleaned_data)
            update_session_auth_hash(request, _me(request))
            done = "Your password is changed; your other sessions have ended."
            if left:
                messages.warning(
                    request,
                    f"{done} {counted(left, 'API token of yours goes', 'API tokens of yours go')} on; end them below.",
                )
            else:
                messages.success(request, f"{done} No API token of yours goes on.")
            return redirect("settings")
    return _settings(request, password_form=form)


@require_POST
@asks_password
def create_token(request: HttpRequest) -> HttpResponse:
    """A token, shown once on the settings page."""
    form = TokenForm(request.POST)
    if form.is_valid():
        with refusals_in(form):
            _, text = services.create_token(actor_of(request), **form.cleaned_data)
            response = redirect("settings")
            once.keep(request, response, _MADE, text)
            return response
    return _settings(request, token_form=form)


@require_POST
def revoke_token(request: HttpRequest, token_id: str) -> HttpResponse:
    """End a token."""
    services.revoke_token(actor_of(request), token_id)
    messages.success(request, "The token is revoked.")
    return redirect("settings")


@sees(Act.USERS_VIEW)
def users(request: HttpRequest) -> HttpResponse:
    """Operators and their roles."""
    context = {"users": services.listed(), "roles": list(ROLES)}
    return render(request, "accounts/users.html", context)


@require_http_methods(["GET", "POST"])
@sees(Act.USERS_MANAGE)
@asks_password
def create_user(request: HttpRequest) -> HttpResponse:
    """A new operator."""
    form = UserForm(request.POST or None)
    if form.is_valid():
        with refusals_in(form):
            user = services.create_user(actor_of(request), **form.cleaned_data)
            messages.success(request, f"{user.username} can log in now.")
            return redirect("users")
    status = 400 if form.is_bound else 200
    return render(request, "accounts/create_user.html", {"form": form}, status=status)


@require_POST
@asks_password
def set_role(request: HttpRequest, username: str) -> HttpResponse:
    """Change a role."""
    services.set_role(actor_of(request), username, request.POST.get("role", ""))
    flash.done(request, f"{username}'s role is changed.")
    return redirect("users")


@require_http_methods(["GET", "POST"])
@sees(Act.USERS_MANAGE)
@asks_password
def set_models(request: HttpRequest, username: str) -> HttpResponse:
    """Limit an operator to some models."""
    person = one_of(User.objects.filter(username=username), f"There is no operator {username!r}.")
    form = ModelsForm(request.POST or None, initial={"models": person.only_models})
    if form.is_valid():
        with refusals_in(form):
            services.set_models(actor_of(request), username, **form.cleaned_data)
            messages.success(
                request,
                f"{username} is limited to these models."
                if form.cleaned_data["models"]
                else f"{username} is limited to no models any more.",
            )
            return redirect("users")
    status = 400 if form.is_bound else 200
    return render(request, "accounts/models_of_user.html", {"form": form, "person": person}, status=status)


@require_POST
@asks_password
def set_active(request: HttpRequest, username: str) -> HttpResponse:
    """Let an operator in or out."""
    is_active = request.POST.get("active") == "1"
    services.set_active(actor_of(request), username, is_active=is_active, reason=request.POST.get("reason", ""))
    flash.done(request, f"{username} {'may log in' if is_active else 'is locked out'}.")
    return redirect("users")


@require_POST
def read_only(request: HttpRequest) -> HttpResponse:
    """Switch read-only mode."""
    is_on = request.POST.get("on") == "1"
    services.switch_read_only(actor_of(request), is_read_only=is_on, message=request.POST.get("message", ""))
    messages.success(request, "The console is read-only." if is_on else "Changes are allowed again.")
    return redirect("settings")


@require_POST
def set_shortcuts(request: HttpRequest) -> HttpResponse:
    """Switch single-key shortcuts on or off."""
    user = services.set_shortcuts(actor_of(request), has_shortcuts=request.POST.get("on") == "1")
    messages.success(request, f"Single-key shortcuts are {'on' if user.has_shortcuts else 'off'}.")
    return redirect("settings")


@login_not_required
def health(request: HttpRequest) -> HttpResponse:
    """200 while this process answers; says nothing of NATS or the database."""
    return HttpResponse("ok\n", content_type="text/plain")


def _me(request: HttpRequest) -> User:
    return User.objects.get(username=request.user.get_username())


def _settings(request: HttpRequest, **given: Any) -> HttpResponse:
    me = _me(request)
    context = {
        "tokens": OperatorToken.objects.filter(user=me),
        "role": me.role,
        "rights": [WORDS[act] for act in Act if me.has_perm(act.permission)],
        "signs_on": signs_on(request),
        "second_factor": SecondFactor.objects.filter(user=me).first(),
        "factor_is_required": settings.CONSOLE.second_factor == "required",
        "system": System.current(),
        "password_form": PasswordForm(),
        "token_form": TokenForm(),
        "read_only_form": ReadOnlyForm(),
        **given,
    }
    form = next((form for form in given.values() if isinstance(form, forms.Form)), None)
    return render(request, "accounts/settings.html", context, status=400 if form else 200)
